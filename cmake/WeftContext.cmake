# Chooses how a fiber's context is switched, and sets
#   WEFT_SWITCH               native, fcontext, or lean if there are no fibers
#   WEFT_CONTEXT_DEFINITIONS  what sources that see the switch are compiled with
#   WEFT_CONTEXT_LIBRARIES    what the library then links

include(CheckCSourceCompiles)

set(WEFT_CONTEXT auto CACHE STRING "Context switch: auto, native or fcontext")
set_property(CACHE WEFT_CONTEXT PROPERTY STRINGS auto native fcontext)
set(WEFT_CONTEXT_DEFINITIONS "")
set(WEFT_CONTEXT_LIBRARIES "")

if(NOT WEFT_FIBERS)
  set(WEFT_SWITCH lean)
  return()
endif()

# The compiler knows its target better than CMAKE_SYSTEM_PROCESSOR does (-m32, x32, cross builds).
check_c_source_compiles("
  #if !(defined(__x86_64__) && defined(__LP64__)) && !(defined(__aarch64__) && defined(__LP64__))
  #error no native switch for this target
  #endif
  int main(void) { return 0; }" WEFT_HAS_NATIVE_CONTEXT)

set(WEFT_SWITCH ${WEFT_CONTEXT})
if(WEFT_SWITCH STREQUAL "auto")
  if(WEFT_HAS_NATIVE_CONTEXT)
    set(WEFT_SWITCH native)
  else()
    set(WEFT_SWITCH fcontext)
  endif()
endif()

if(WEFT_SWITCH STREQUAL "native")
  if(NOT WEFT_HAS_NATIVE_CONTEXT)
    message(FATAL_ERROR "WEFT_CONTEXT=native: no native switch for this processor; use fcontext.")
  endif()
  list(APPEND WEFT_CONTEXT_DEFINITIONS WEFT_CONTEXT_NATIVE=1)
elseif(WEFT_SWITCH STREQUAL "fcontext")
  # Boost 1.87 and later export the functions from the shared library under C++ names only.
  set(CMAKE_REQUIRED_LIBRARIES boost_context)
  foreach(names IN ITEMS C CXX)
    if(names STREQUAL "C")
      set(make make_fcontext)
      set(jump jump_fcontext)
      set(ontop ontop_fcontext)
    else()
      # Only the width of size_t differs between processors.
      string(REPLACE "8" "m" size "${CMAKE_SIZEOF_VOID_P}")
      string(REPLACE "4" "j" size "${size}")
      set(scope _ZN5boost7context6detail)
      set(make ${scope}13make_fcontextEPv${size}PFvNS1_10transfer_tEE)
      set(jump ${scope}13jump_fcontextEPvS2_)
      set(ontop ${scope}14ontop_fcontextEPvS2_PFNS1_10transfer_tES3_E)
    endif()
    check_c_source_compiles("
      void make(void) __asm__(\"${make}\");
      void jump(void) __asm__(\"${jump}\");
      void ontop(void) __asm__(\"${ontop}\");
      int main(void) { make(); jump(); ontop(); return 0; }" WEFT_FCONTEXT_HAS_${names}_NAMES)
  endforeach()
  unset(CMAKE_REQUIRED_LIBRARIES)

  list(APPEND WEFT_CONTEXT_DEFINITIONS WEFT_CONTEXT_FCONTEXT=1)
  list(APPEND WEFT_CONTEXT_LIBRARIES boost_context)
  if(NOT WEFT_FCONTEXT_HAS_C_NAMES)
    if(NOT WEFT_FCONTEXT_HAS_CXX_NAMES)
      message(FATAL_ERROR "WEFT_CONTEXT=fcontext needs Boost.Context (libboost-context-dev), and no "
        "library boost_context with make_fcontext, jump_fcontext and ontop_fcontext links here.")
    endif()
    list(APPEND WEFT_CONTEXT_DEFINITIONS WEFT_FCONTEXT_MANGLED=1)
  endif()
else()
  message(FATAL_ERROR "WEFT_CONTEXT is '${WEFT_CONTEXT}'; it can be auto, native or fcontext.")
endif()

message(STATUS "Context switch: ${WEFT_SWITCH}")
