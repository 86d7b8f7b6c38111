# Writes OUTPUT from io/git_version.cpp.in, only if it changes: cmake -DSOURCE=<root> -DOUTPUT=<file> -P git_version.cmake
find_program(GIT_EXECUTABLE git)
set(GIT_SHA unknown)
set(GIT_DIRTY unknown)
if(GIT_EXECUTABLE)
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse HEAD WORKING_DIRECTORY "${SOURCE}" RESULT_VARIABLE result
                  OUTPUT_VARIABLE sha ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(result EQUAL 0)
    set(GIT_SHA "${sha}")
    # --no-optional-locks: a build must not block someone's commit.
    execute_process(COMMAND "${GIT_EXECUTABLE}" --no-optional-locks status --porcelain --untracked-files=no
                    WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes STREQUAL "")
      set(GIT_DIRTY no)
    else()
      set(GIT_DIRTY yes)
    endif()
  endif()
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/git_version.cpp.in" "${OUTPUT}" @ONLY)
