/* settings.c - where the limiter finds its files.
 *
 * No environment variable: whoever writes the container's image could set it. Both folders stand in
 * the library itself, behind a mark, so that whoever installs the file can write other ones over
 * them (tests do; see README.md). */
#include <string.h>

#include "settings.h"
#include "text.h"

struct setting {
	char mark[32];
	char value[SETTING_MAX];
};

/* The compiler must not know what stands in them. */
static volatile struct setting folder = { "edgegpu-limiter-folder:", "/run/edgegpu/container" };
static volatile struct setting driver = { "edgegpu-limiter-driver:", "/run/edgegpu/container/driver" };

static const char *unknown(const volatile char *value)
{
	__asm__("" : "+r"(value));
	return (const char *)value;
}

const char *setting_folder(void)
{
	return unknown(folder.value);
}

const char *setting_driver(void)
{
	return unknown(driver.value);
}

_Bool setting_path(char *out, unsigned long size, const char *in, const char *name)
{
	unsigned long first = 0, second = text_length(name);

	while (first < SETTING_MAX && in[first] != '\0')
		first++;
	if (first + 1 + second >= size)
		return 0;
	memcpy(out, in, first);
	out[first] = '/';
	memcpy(out + first + 1, name, second + 1);
	return 1;
}
