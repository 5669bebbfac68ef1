/* limits.h - what the container was given, read from its limits file and read again while it runs.
 *
 * The file, which only the device plugin writes (to a temporary name, then renamed):
 *
 *     edgegpu-limits 1
 *     card GPU-1b2c… memory_bytes=1073741824 context_bytes=314572800 core_percent=30 policy=strict
 *
 * Words that are not known are passed over, so that a newer plugin may write more. A card that it does
 * not name, and a file that was never readable, mean 0 bytes and 1 percent. A file that makes no sense
 * changes nothing. A file that is gone, or another one than was read and cannot be read, leaves for a second
 * what there was, and then no room and 1 percent, until it can be read: it is replaced by a rename alone, so it
 * is always there, and to see that it is the one that was read takes no descriptor. A card without core_percent, or with policy=off, has no limit
 * of its time. With policy=mps the share is one of multiprocessors in processes that are clients of
 * NVIDIA MPS, and strict in all others; any other policy is strict.
 *
 * `uncounted_bytes=N` beside it: what the driver counts of the container beyond its usage file, as the
 * plugin has seen it. It takes room as if the container had counted it.
 *
 * `charge_permille=850 charge_until_ms=N` beside it: of what is measured of the container's time only so
 * much is charged, until a moment of CLOCK_MONOTONIC. The plugin writes it anew as long as it holds, so
 * that nothing stays of a plugin that is gone. */
#ifndef EDGEGPU_LIMITER_LIMITS_H
#define EDGEGPU_LIMITER_LIMITS_H

#include <stdbool.h>

#include "process.h"

/* The card of that uuid; where nothing can be known of it (no memory, more cards than a container can have)
 * the one of which nobody gets anything. */
struct card *limits_card(const uint8_t uuid[16]);
struct card *limits_unknown(void);

uint64_t limits_memory(const struct card *card);	/* looks at the file where it is time to */
/* What the container may count of it: the limit without what the driver counts beyond the usage file. */
uint64_t limits_room(const struct card *card);
uint64_t limits_uncounted(const struct card *card);
uint64_t limits_context(const struct card *card);
/* Percent of its time, 0: no limit of it. Where MPS gives this process a part of the multiprocessors, what
 * of the time is left for it: the container's processes with a context share what core_percent says. */
unsigned int limits_core(const struct card *card);

/* The least core_percent of a card with policy=mps, as the file says now; 0: there is none. */
unsigned int limits_mps_percent(void);

bool limits_corrected(const struct card *card);	/* the plugin says now how much is charged */
unsigned int limits_charge(const struct card *card);	/* permille of what is measured */

/* "GPU-1b2c…" or "MIG-…" to 16 bytes; false: it is none. */
bool limits_uuid(const char *text, uint8_t out[16]);

/* Read the text of a limits file; the entries, -1: it makes no sense. text is written to. */
int limits_parse(char *text, struct limit *out, int room);

#endif
