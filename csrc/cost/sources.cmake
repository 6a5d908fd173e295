set(AIKIDO_COST_SOURCES
  cost/collective_cost.cpp
  cost/link_cost.cpp
  cost/link_fit.cpp
  cost/pipelining.cpp)
