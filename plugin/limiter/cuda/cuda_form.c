/* cuda_form.c - which of a function's forms cuGetProcAddress means, by name and by the version since which each is there.
 *
 * Of the forms that are not newer than the version asked for it is the newest; of two of one age the one for the default
 * stream of each thread, where that is meant. NVIDIA's drivers of four branches chose so for each name and version. */
#include "driver.h"
#include "form.h"
#include "text.h"

static const unsigned short since[FN_COUNT] = {
#define FUNCTION(name, version, hooked) version,
#include "functions.def"
#undef FUNCTION
};

/* The length of a name without the stream that it is for. */
static size_t without_stream(const char *name)
{
	size_t length = text_length(name);

	if (length > 5 && (text_equal(name + length - 5, "_ptsz") || text_equal(name + length - 5, "_ptds")))
		length -= 5;
	return length;
}

size_t form_stem(const char *name)
{
	size_t length = without_stream(name);

	if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' && name[length - 1] >= '2' &&
	    name[length - 1] <= '9')
		length -= 3;
	return length;
}

bool form_same_stem(const char *name, const char *symbol)
{
	size_t length = form_stem(name), same = 0;

	while (same < length && name[same] == symbol[same])
		same++;
	return same == length && length == form_stem(symbol);
}

static bool is_per_thread(const char *name)
{
	return without_stream(name) != text_length(name);
}

/* The list is in order: of two forms the later one has the higher number. */
static bool is_newer(int one, int other)
{
	if (since[one] != since[other])
		return since[one] > since[other];
	return is_per_thread(driver_names[one]) >= is_per_thread(driver_names[other]);
}

int form_choose(const char *symbol, int version, bool per_thread, bool (*exists)(int function))
{
	bool is_one_form = form_stem(symbol) != text_length(symbol);
	int best = -1;

	for (int function = 0; function < FN_COUNT; function++) {
		const char *name = driver_names[function];

		if (!form_same_stem(name, symbol) || !exists(function))
			continue;
		if (is_one_form ? !text_equal(name, symbol) :
				  since[function] > version || (is_per_thread(name) && !per_thread))
			continue;
		if (best < 0 || is_newer(function, best))
			best = function;
	}
	return best;
}
