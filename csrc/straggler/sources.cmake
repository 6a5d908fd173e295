set(AIKIDO_STRAGGLER_SOURCES
  straggler/deadline.cpp
  straggler/decision.cpp
  straggler/group_policy.cpp
  straggler/history.cpp
  straggler/policy.cpp
  straggler/skip.cpp
  straggler/wait_all.cpp)
