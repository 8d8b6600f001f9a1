/* A stand-in for tests, not GASNet: see gasnetex.h. Remote atomics. */
#ifndef STAND_IN_GASNET_RATOMIC_H
#define STAND_IN_GASNET_RATOMIC_H

#include "gasnetex.h"

typedef struct stand_in_domain *gex_AD_t;

void gex_AD_Create(gex_AD_t *ad_p, gex_TM_t tm, gex_DT_t type, gex_OP_t ops, gex_Flags_t flags);
gex_Event_t gex_AD_OpNB_U64(gex_AD_t ad, uint64_t *result, gex_Rank_t rank, void *where,
                            gex_OP_t op, uint64_t first, uint64_t second, gex_Flags_t flags)
    __attribute__((warn_unused_result));
int gex_AD_OpNBI_U64(gex_AD_t ad, uint64_t *result, gex_Rank_t rank, void *where, gex_OP_t op,
                     uint64_t first, uint64_t second, gex_Flags_t flags);

#endif
