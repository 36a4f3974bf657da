# The dependency rule, as include paths.
#
# A view is a folder 'views/NAME/weft' with links to some of the public headers. A part compiles
# with its own view and with the private folders it may know, and with no other include path of this
# tree, so what it must not know it cannot include.

# Links of an earlier run may name headers that are gone.
file(REMOVE_RECURSE "${PROJECT_BINARY_DIR}/views")

# The objects of all parts.
set(WEFT_OBJECTS "")

# weft_view(NAME SEES FILE...)
function(weft_view name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SEES")
  set(view "${PROJECT_BINARY_DIR}/views/${name}/weft")
  file(MAKE_DIRECTORY "${view}")
  foreach(header IN LISTS arg_SEES)
    cmake_path(GET header FILENAME file)
    file(CREATE_LINK "${header}" "${view}/${file}" SYMBOLIC)
  endforeach()
endfunction()

# weft_part(NAME SOURCES FILE... SEES HEADER... PRIVATE FOLDER... [DEFINITIONS DEFINITION...])
# adds the object library weft_NAME. Every part sees config.h.
function(weft_part name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;SEES;PRIVATE;DEFINITIONS")
  list(JOIN arg_SEES "|" seen)
  set(headers ${WEFT_HEADERS})
  list(FILTER headers INCLUDE REGEX "/(config|${seen})\\.h$")
  weft_view(${name} SEES ${headers})

  add_library(weft_${name} OBJECT ${arg_SOURCES})
  target_include_directories(weft_${name} PRIVATE "${PROJECT_BINARY_DIR}/views/${name}")
  foreach(folder IN LISTS arg_PRIVATE)
    target_include_directories(weft_${name} PRIVATE "${PROJECT_SOURCE_DIR}/${folder}")
  endforeach()
  target_compile_definitions(weft_${name} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(weft_${name} PRIVATE weft_code Threads::Threads)
  if("ring" IN_LIST arg_SEES)
    target_link_libraries(weft_${name} PRIVATE PkgConfig::LIBURING)
  endif()

  set(WEFT_OBJECTS ${WEFT_OBJECTS} $<TARGET_OBJECTS:weft_${name}> PARENT_SCOPE)
endfunction()
