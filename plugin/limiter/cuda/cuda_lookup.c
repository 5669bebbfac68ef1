/* cuda_lookup.c - cuGetProcAddress: the way by which the CUDA runtime finds every function.
 *
 * The driver is asked first, with the program's own version and flags; the hook is chosen by the
 * pointer that it returned, since a name alone stands for functions of different arguments. A pointer
 * that is no known form of a function that we stand in is withheld: it could take memory unseen. A
 * form that the list passes on is a known one. */
#include <stdbool.h>

#include "charge.h"
#include "text.h"

/* Generated: the functions that have a hook, and their hooks. */
struct hooked {
	int function;
	void *hook;
};

extern const struct hooked hooked_functions[];
extern const int hooked_count;

/* The functions of the list whose names differ in version and stream alone have one stem. */
static size_t stem(const char *name)
{
	size_t length = text_length(name);

	if (length > 5 && (text_equal(name + length - 5, "_ptsz") ||
			   text_equal(name + length - 5, "_ptds")))
		length -= 5;
	if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' &&
	    name[length - 1] >= '2' && name[length - 1] <= '9')
		length -= 3;
	return length;
}

/* Of a stem; never 0. */
static uint32_t stem_hash(const char *name)
{
	uint32_t hash = 0;

	for (size_t i = 0, length = stem(name); i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * 0x01000193u;
	return hash | 1;
}

static uint32_t stem_hashes[FN_COUNT];	/* of the list's names; 0: not known yet; each atomic */

/* hash: the symbol's. A runtime asks for all functions one after the other, and only few have one hash. */
static bool same_stem(int function, const char *symbol, uint32_t hash)
{
	const char *name = driver_names[function];
	uint32_t known = __atomic_load_n(&stem_hashes[function], __ATOMIC_RELAXED);
	size_t length, same = 0;

	if (known == 0) {
		known = stem_hash(name);
		__atomic_store_n(&stem_hashes[function], known, __ATOMIC_RELAXED);
	}
	if (known != hash)
		return false;
	length = stem(name);
	while (same < length && name[same] == symbol[same])
		same++;
	return same == length && length == stem(symbol);
}

/* Whether the driver gave a form of this name that the list has. */
static bool is_listed(const char *symbol, uint32_t hash, const void *given)
{
	for (int function = 0; function < FN_COUNT; function++)
		if (same_stem(function, symbol, hash) && driver_find(function) == given)
			return true;
	return false;
}

/* What the program gets for what the driver gave; NULL: nothing. */
static void *stand_in(const char *symbol, void *given)
{
	uint32_t hash = stem_hash(symbol);
	bool guarded = false;

	for (int i = 0; i < hooked_count; i++) {
		int function = hooked_functions[i].function;

		if (given == hooked_functions[i].hook)
			return given;	/* the driver found us, not itself */
		if (!same_stem(function, symbol, hash))
			continue;
		guarded = true;
		if (driver_find(function) == given)
			return hooked_functions[i].hook;
	}
	return guarded && !is_listed(symbol, hash, given) ? NULL : given;
}

#define NAME_MAX 256			/* no function's name is longer */

/* The name, before the program can change it again; of one that is too long what fits, which is no function's. */
static void copy_name(char out[NAME_MAX], const volatile char *name)
{
	unsigned int at = 0;

	while (at < NAME_MAX - 1 && (out[at] = name[at]) != '\0')
		at++;
	out[at] = '\0';
}

/* What the driver gave is ours alone, until it is known what stands in for it. True: the program may have `given`. */
static bool replaced(const char *symbol, void **given, CUresult ret)
{
	if (ret != CUDA_SUCCESS || *given == NULL)
		return true;
	*given = stand_in(symbol, *given);
	return *given != NULL;
}

CUresult EXPORT cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
	char name[NAME_MAX];
	void *given;
	CUresult ret;

	if (NESTED || symbol == NULL || out == NULL)
		return DRIVER(cuGetProcAddress)(symbol, out, version, flags);
	copy_name(name, symbol);
	given = *out;
	ret = CALL(cuGetProcAddress, name, &given, version, flags);
	if (!replaced(name, &given, ret))
		ret = CUDA_ERROR_NOT_FOUND;
	*out = given;
	return ret;
}

/* A function of one form alone, which no version changes. NULL: the driver lacks it, or it has several. */
static void *only_form(const char *name)
{
	uint32_t hash = stem_hash(name);
	int only = -1;

	for (int function = 0; function < FN_COUNT; function++) {
		if (!same_stem(function, name, hash))
			continue;
		if (only >= 0 || !text_equal(driver_names[function], name))
			return NULL;
		only = function;
	}
	return only >= 0 ? driver_find(only) : NULL;
}

/* Answer in the place of a driver that lacks this form: one before CUDA 12. A runtime that finds ours asks it alone, and
 * must learn which version the driver has. Before 11.3 there is no older form to ask: what its name alone decides is
 * found, and no other function. */
static CUresult ask_older(const char *name, void **given, int version, uint64_t flags, int *status)
{
	CUresult ret = CUDA_SUCCESS;

	if (version >= 12000 && text_equal(name, "cuGetProcAddress"))
		*given = (void *)&cuGetProcAddress_v2;
	else if (driver_find(FN_cuGetProcAddress) == NULL)
		*given = only_form(name);
	else
		ret = CALL(cuGetProcAddress, name, given, version, flags);
	if (ret == CUDA_ERROR_NOT_FOUND) {
		*given = NULL;
		ret = CUDA_SUCCESS;
	}
	if (status != NULL)
		*status = *given != NULL ? CU_PROC_ADDRESS_SUCCESS : CU_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return ret;
}

static CUresult ask(const char *name, void **given, int version, uint64_t flags, int *status)
{
	if (driver_open() == NULL || driver_find(FN_cuGetProcAddress_v2) != NULL)
		return CALL(cuGetProcAddress_v2, name, given, version, flags, status);
	return ask_older(name, given, version, flags, status);
}

/* This form says in its status what it did not find, and succeeds. */
CUresult EXPORT cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				    int *status)
{
	char name[NAME_MAX];
	void *given;
	CUresult ret;

	if (NESTED || symbol == NULL || out == NULL)
		return DRIVER(cuGetProcAddress_v2)(symbol, out, version, flags, status);
	copy_name(name, symbol);
	given = *out;
	ret = ask(name, &given, version, flags, status);
	if (!replaced(name, &given, ret) && status != NULL)
		*status = CU_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	*out = given;
	return ret;
}
