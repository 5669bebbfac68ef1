/* usage_file.h - the mapped file and this process's slot in it, for usage.c. */
#ifndef EDGEGPU_LIMITER_USAGE_FILE_H
#define EDGEGPU_LIMITER_USAGE_FILE_H

#include "usage.h"

struct usage *usage_map(void);			/* NULL: no usable file */

/* This process's slot; NULL: none is free, or there is no usable file. */
struct usage_slot *usage_slot(void);

bool usage_slot_lives(const struct usage *map, unsigned int slot);	/* false: taken, and its process has ended */
void usage_reap(struct usage *map);		/* free the slots of processes that have ended */
unsigned int usage_high(const struct usage *map);
unsigned int usage_cards(const struct usage *map);	/* how many cards it names */

/* unwritable.c: an open of the file for writing failed so: a line for people, a mark for the plugin. */
void usage_unwritable(const char *path, long error);
void usage_show_mark(void);			/* once in a process: stay until the plugin has had a look at the mark */

#endif
