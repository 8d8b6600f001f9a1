/* A stand-in for tests, not GASNet: see gasnetex.h. Collectives but the barrier. */
#ifndef STAND_IN_GASNET_COLL_H
#define STAND_IN_GASNET_COLL_H

#include "gasnetex.h"

typedef void (*gex_Coll_ReduceFn_t)(const void *left, void *right_and_out, size_t count,
                                    const void *cdata);

gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void *destination,
                                 const void *source, size_t length, gex_Flags_t flags)
    __attribute__((warn_unused_result));
gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void *destination,
                                   const void *source, gex_DT_t type, size_t each, size_t count,
                                   gex_OP_t op, gex_Coll_ReduceFn_t user_op, void *user_cdata,
                                   gex_Flags_t flags) __attribute__((warn_unused_result));
gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void *destination, const void *source,
                                   gex_DT_t type, size_t each, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void *user_cdata, gex_Flags_t flags)
    __attribute__((warn_unused_result));

#endif
