/* cuda_lookup.c - cuGetProcAddress: the way by which the CUDA runtime finds every function.
 *
 * The driver is asked first, with the program's own version and flags; the hook is chosen by the
 * pointer that it returned, since a name alone stands for functions of different arguments. Where that
 * pointer is no symbol of the driver's, the hook is chosen by the name, and by the versions since which
 * its forms are there (cuda_form.c). What may be a form that the list lacks is withheld: it could take
 * memory unseen. A form that the list passes on is a known one. Withheld is also what a name stands for
 * that the list lacks altogether: programs take it for one that the driver lacks. */
#include <stdbool.h>

#include "charge.h"
#include "form.h"
#include "text.h"

/* Generated: the functions that have a hook, and their hooks. */
struct hooked {
	int function;
	void *hook;
};

extern const struct hooked hooked_functions[];
extern const int hooked_count;

#define PER_THREAD 2			/* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

static bool begins_with(const char *name, const char *begin, size_t length)
{
	size_t same = 0;

	while (same < length && name[same] == begin[same])
		same++;
	return same == length;
}

/* The first name of the list that does not stand before this beginning: the list is sorted. */
static int first_with(const char *begin, size_t length)
{
	int low = 0, high = FN_COUNT;

	while (low < high) {
		int middle = low + (high - low) / 2;
		const char *name = driver_names[middle];
		size_t same = 0;

		while (same < length && name[same] == begin[same])
			same++;
		if (same < length && (unsigned char)name[same] < (unsigned char)begin[same])
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* What stands in for a function; NULL: nothing does. The hooks are sorted as the list is. */
static void *hook_of(int function)
{
	int low = 0, high = hooked_count;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (hooked_functions[middle].function < function)
			low = middle + 1;
		else
			high = middle;
	}
	return low < hooked_count && hooked_functions[low].function == function ? hooked_functions[low].hook : NULL;
}

static bool is_a_hook(const void *given)
{
	for (int i = 0; i < hooked_count; i++)
		if (given == hooked_functions[i].hook)
			return true;
	return false;
}

static bool driver_has(int function)
{
	return driver_find(function) != NULL;
}

static int function_at(const void *given)
{
	for (int function = 0; function < FN_COUNT; function++)
		if (driver_find(function) == given)
			return function;
	return -1;
}

/* Whether the driver gives the same at the newest version that the list has. */
static bool same_when_listed(const char *symbol, const void *given, uint64_t flags)
{
	void *listed = NULL;
	int status;

	if (driver_has(FN_cuGetProcAddress_v2))
		CALL(cuGetProcAddress_v2, symbol, &listed, LISTED_CUDA, flags, &status);
	else
		CALL(cuGetProcAddress, symbol, &listed, LISTED_CUDA, flags);
	return listed == given;
}

/* A pointer that is no form of this name by the driver's symbols: another name's, or none at all. */
static void *by_form(const char *symbol, void *given, int version, uint64_t flags)
{
	int function = function_at(given);
	void *hook;

	if (function < 0 && version > LISTED_CUDA && !same_when_listed(symbol, given, flags))
		return NULL;
	if (function < 0)
		function = form_choose(symbol, version, (flags & PER_THREAD) != 0, driver_has);
	if (function < 0)
		return NULL;
	hook = hook_of(function);
	return hook != NULL ? hook : given;
}

/* What the program gets for what the driver gave; NULL: nothing, as for a name that the list lacks. */
static void *stand_in(const char *symbol, void *given, int version, uint64_t flags)
{
	bool listed = false, guarded = false, same_form = false;
	size_t length = form_stem(symbol);

	if (is_a_hook(given))
		return given;	/* the driver found us, not itself */
	for (int function = first_with(symbol, length);
	     function < FN_COUNT && begins_with(driver_names[function], symbol, length); function++) {
		bool is_given;
		void *hook;

		if (!form_same_stem(driver_names[function], symbol))
			continue;
		listed = true;
		is_given = driver_find(function) == given;
		hook = hook_of(function);
		if (hook != NULL && is_given)
			return hook;
		guarded = guarded || hook != NULL;
		same_form = same_form || is_given;
	}
	if (!listed)
		return NULL;
	return guarded && !same_form ? by_form(symbol, given, version, flags) : given;
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
static bool replaced(const char *symbol, void **given, int version, uint64_t flags, CUresult ret)
{
	if (ret != CUDA_SUCCESS || *given == NULL)
		return true;
	*given = stand_in(symbol, *given, version, flags);
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
	if (!replaced(name, &given, version, flags, ret))
		ret = CUDA_ERROR_NOT_FOUND;
	*out = given;
	return ret;
}

/* A function of one form alone, which no version changes. NULL: the driver lacks it, or it has several. */
static void *only_form(const char *name)
{
	int only = -1;

	for (int function = 0; function < FN_COUNT; function++) {
		if (!form_same_stem(driver_names[function], name))
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
	if (!replaced(name, &given, version, flags, ret) && status != NULL)
		*status = CU_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	*out = given;
	return ret;
}
