set(AIKIDO_PIPELINE_SOURCES
  pipeline/cost.cpp
  pipeline/cut_graph.cpp
  pipeline/partition.cpp
  pipeline/profile.cpp
  pipeline/solver.cpp)
