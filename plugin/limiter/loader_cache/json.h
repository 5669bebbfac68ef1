/* json.h - the one question to a JSON document that is asked here. Pure: no call of the kernel. */
#ifndef EDGEGPU_LOADER_CACHE_JSON_H
#define EDGEGPU_LOADER_CACHE_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Find the text at a path of keys, `outer` (NULL: none) and `key` in it, and write it with a 0 at its end.
 * False: there is none, it is too long, or it has characters that no path of a runtime's has. */
bool json_text(const char *document, size_t length, const char *outer, const char *key, char *out, size_t room);

#endif
