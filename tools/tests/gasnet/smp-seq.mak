# A stand-in for tests, not GASNet: see gasnetex.h. The variables that its fragment has for clients.
GASNET_PREFIX := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/../..)
GASNET_CC = cc
GASNET_CPPFLAGS = -DGASNET_SEQ -D_GNU_SOURCE=1 -I$(GASNET_PREFIX)/include -I$(GASNET_PREFIX)/include/smp-conduit
GASNET_CFLAGS = -O2 -Wall -Wextra -Werror
GASNET_LD = cc
GASNET_LDFLAGS = -O2
GASNET_LIBS = -L$(GASNET_PREFIX)/lib -lgasnet-smp-seq
