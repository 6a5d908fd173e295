# Finds Python and the torch it imports. torch's own CMake package is not used: it
# demands a CUDA toolkit from everyone who has a CUDA wheel. Sets AIKIDO_HAS_TORCH,
# AIKIDO_TORCH_VERSION, _MINOR ("2.15"), _CUDA ("13.2" or empty) and _ROOT, and defines
# the target aikido_torch_api.
find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Interpreter_FOUND)
  aikido_missing(AIKIDO_TORCH "no Python 3.11 or newer (-DPython_EXECUTABLE=...)")
  return()
endif()
if(NOT Python_Development.Module_FOUND)
  aikido_missing(AIKIDO_TORCH
    "no Python.h for ${Python_EXECUTABLE} (Debian: python3-dev)")
  return()
endif()

set(question [[
import torch
print(torch.__version__.split("+")[0])
print(torch.version.cuda or "")
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
print(torch.__path__[0], end="")
]])
execute_process(
  COMMAND ${Python_EXECUTABLE} -P -c "${question}"
  OUTPUT_VARIABLE answer ERROR_VARIABLE trouble RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  string(REGEX REPLACE "^.*\n([^\n]+)\n*$" "\\1" trouble "${trouble}")
  aikido_missing(AIKIDO_TORCH "${Python_EXECUTABLE} cannot import torch (${trouble})")
  return()
endif()
string(REGEX MATCH "^([^\n]*)\n([^\n]*)\n([01])\n(.*)$" answer "${answer}")
set(AIKIDO_TORCH_VERSION "${CMAKE_MATCH_1}")
set(AIKIDO_TORCH_CUDA "${CMAKE_MATCH_2}")
set(torch_cxx11_abi "${CMAKE_MATCH_3}")
set(AIKIDO_TORCH_ROOT "${CMAKE_MATCH_4}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" AIKIDO_TORCH_MINOR "${AIKIDO_TORCH_VERSION}")
if(AIKIDO_TORCH_MINOR VERSION_LESS 2.11 OR AIKIDO_TORCH_MINOR VERSION_GREATER 2.15)
  aikido_missing(AIKIDO_TORCH
    "torch ${AIKIDO_TORCH_VERSION} is outside the supported 2.11 to 2.15")
  return()
endif()

# SYSTEM: warnings in torch's headers are not ours. pybind11 is the one that torch
# bundles, so that both sides share its internals.
add_library(aikido_torch_api INTERFACE)
target_include_directories(aikido_torch_api SYSTEM INTERFACE
  ${AIKIDO_TORCH_ROOT}/include ${AIKIDO_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_directories(aikido_torch_api INTERFACE ${AIKIDO_TORCH_ROOT}/lib)
target_link_libraries(aikido_torch_api INTERFACE
  c10 torch_cpu torch torch_python Python::Module)
target_compile_definitions(aikido_torch_api INTERFACE
  _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi}
  AIKIDO_TORCH_MINOR="${AIKIDO_TORCH_MINOR}")

set(AIKIDO_HAS_TORCH ON)
set(AIKIDO_TORCH_state "on: ${AIKIDO_TORCH_VERSION} in ${AIKIDO_TORCH_ROOT}")
