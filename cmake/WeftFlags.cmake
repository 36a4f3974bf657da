# Compiler flags. weft_warnings carries the warnings for everything in this tree; weft_code carries
# what the library's own objects need on top.

include(CheckCCompilerFlag)

add_library(weft_warnings INTERFACE)
target_compile_options(weft_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wvla
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<BOOL:${WEFT_WERROR}>:-Werror>)

add_library(weft_code INTERFACE)
target_link_libraries(weft_code INTERFACE weft_warnings)
target_compile_definitions(weft_code INTERFACE _GNU_SOURCE)

# -fPIC:                    one set of objects serves the archive and the shared library
# -ftls-model=initial-exec: the current runtime is found with one load, not with a call
# -fno-omit-frame-pointer:  profilers can walk a fiber's stack
# -fstack-clash-protection: a large frame cannot step over a fiber's guard page
# -fcf-protection=none, -mbranch-protection=none: a switched stack has no shadow stack, so no
#                           object may claim that it works with one
# -fno-tree-slp-vectorize:  neighbouring fields are stored one by one and would be loaded two at a
#                           time, for which no store can be forwarded (docs/scheduling.md)
target_compile_options(weft_code INTERFACE
  -fvisibility=hidden -fPIC -ftls-model=initial-exec -fno-omit-frame-pointer)
# Some compilers take another processor's flag with a warning.
set(CMAKE_REQUIRED_FLAGS -Werror)
foreach(flag IN ITEMS -fstack-clash-protection -fcf-protection=none -mbranch-protection=none
    -fno-tree-slp-vectorize)
  string(MAKE_C_IDENTIFIER "WEFT_ACCEPTS${flag}" accepted)
  check_c_compiler_flag(${flag} ${accepted})
  if(${accepted})
    target_compile_options(weft_code INTERFACE ${flag})
  endif()
endforeach()
unset(CMAKE_REQUIRED_FLAGS)

if(WEFT_SANITIZE)
  # A finding ends the program: a test cannot pass with one.
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()
