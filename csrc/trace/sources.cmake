set(AIKIDO_TRACE_SOURCES
  trace/clock_offset.cpp
  trace/event_log.cpp
  trace/recorder.cpp
  trace/ring.cpp
  trace/stop_watch.cpp)
