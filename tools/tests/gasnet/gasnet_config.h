/* A stand-in for tests, not GASNet: see gasnetex.h. What GASNet's configure writes, as far as anybody
 * looks at it. */
#define GASNET_RELEASE_VERSION_MAJOR 2000
#define GASNET_RELEASE_VERSION_MINOR 1
#define GASNET_RELEASE_VERSION_PATCH 0
#define GASNETI_RELEASE_VERSION 2000.1.0-stand-in
#define GASNETI_PSHM_ENABLED 1
/* #undef GASNETI_UNI_BUILD */
/* #undef GASNET_DEBUG */
#define GASNET_NDEBUG 1
/* #undef GASNET_TRACE */
/* #undef GASNET_STATS */
/* #undef GASNET_DEBUGMALLOC */
/* #undef GASNET_SRCLINES */
