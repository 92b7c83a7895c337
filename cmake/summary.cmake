# What the configure step found, in one place, so that a surprise is seen before the build.
message(STATUS "tutti ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
message(STATUS "  sanitizers  ${TUTTI_SANITIZE}")
message(STATUS "  CUDA        ${TUTTI_CUDA}")
message(STATUS "  tests       ${TUTTI_TESTS}, fuzzers ${TUTTI_FUZZ}, benchmarks ${TUTTI_BENCH}")
message(STATUS "  ccache      ${CCACHE}")
