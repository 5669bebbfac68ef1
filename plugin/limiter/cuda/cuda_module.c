/* cuda_module.c - code and global variables of modules and libraries.
 *
 * No size in an image says what it takes: code is compiled, chosen among several, unpacked, or left
 * until it is needed; a variable of gigabytes is a few letters. So it is measured: what the card has
 * less of afterwards, and the container does not know of. It is loaded once: a second load would write
 * into the program's options again, and take as long. Others on the card disturb the measure, so a
 * large one counts no more than an image of its form can take, where the form says that. What the
 * driver loads at a kernel's first launch is not seen.
 *
 * Measuring is in cuda_measure.c. */
#include "image.h"
#include "local.h"
#include "measure.h"

#define LARGE (16ull << 20)		/* what a load may take beside the image: above, it counts for less */
/* What may bring a library to life in a context, each with its first call there: with lazy loading the first kernel's
 * code comes when its function is asked for. Beside them LEDGER_LIVE has the library's number. */
enum { ASKED_FOR_PART = 1, ASKED_FOR_FUNCTION = 2, ASKS = 4 };

#define CU_MODULE_LAZY 2
#define IMAGE_LEAST (2ull << 20)	/* a driver takes memory of the card for code by blocks of that size */

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

/* What the library of that number has in a context: with it that goes, and the library stays. False: nothing is known
 * of it, and part->key is free. */
static bool find_part(unsigned int number, uint64_t context, struct ledger_entry *part)
{
	uint64_t key = (context ^ (uint64_t)number << 40) * 0x9e3779b97f4a7c15u;

	for (; ledger_get(LEDGER_LIVE, key, part); key++)
		if (part->of == context && part->references / ASKS == number)
			return true;
	*part = (struct ledger_entry){ .key = key, .of = context, .references = ASKS * number, .kind = LEDGER_LIVE };
	return false;
}

/* Code that is loaded at once is the current context's, if there is one. */
static CUresult library_loaded(const struct charge *charge, uint64_t library, uint64_t image)
{
	struct process *own = process_own();
	unsigned int number = own != NULL ? __atomic_add_fetch(&own->libraries, 1, __ATOMIC_RELAXED) : 0;
	struct ledger_entry part;

	number &= UINT32_MAX / ASKS;
	ledger_put((struct ledger_entry){ .key = library, .bytes = image, .references = number,
					  .kind = LEDGER_LIBRARY, .card = -1 });
	if (charge->card == NULL)
		return CUDA_SUCCESS;
	find_part(number, charge->context, &part);
	part.bytes = charge->bytes;
	part.card = (int16_t)card_index(charge->card);
	ledger_put(part);
	return CUDA_SUCCESS;
}

/* Count it, or unload it; image: its size, 0 for a module, of which it is not needed. */
static CUresult count(struct measure *measure, CUresult ret, enum ledger_kind kind, uint64_t key,
		      uint64_t bytes, uint64_t image)
{
	struct charge charge;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (measure->card == NULL && kind == LEDGER_MODULE) {
		CALL(cuModuleUnload, (CUmodule)(uintptr_t)key);
		return CUDA_ERROR_INVALID_CONTEXT;	/* there was none yet, and so it is not measured */
	}
	if (!charge_card(&charge, measure->card, bytes)) {
		if (kind == LEDGER_MODULE)
			CALL(cuModuleUnload, (CUmodule)(uintptr_t)key);
		else
			CALL(cuLibraryUnload, (CUlibrary)(uintptr_t)key);
		return charge.why;
	}
	charge.context = (uintptr_t)measure->context;
	return kind == LEDGER_MODULE ? charge_settle(&charge, ret, kind, key) : library_loaded(&charge, key, image);
}

/* What counts for an image that is loaded; NULL: it is not in memory. */
static uint64_t counted_bytes(struct measure *measure, const void *image)
{
	uint64_t bytes = measure_taken(measure), most;

	if (bytes <= LARGE || image == NULL)
		return bytes;
	most = image_most(image);
	return most < UINT64_MAX - LARGE ? least(bytes, LARGE + most) : bytes;
}

/* Load by `load`, an expression; image: in memory, or NULL; size: of a library's. */
#define LOAD(kind, load, image, size)                                                             \
	__typeof__(*out) made = *out;                                                             \
	struct measure measure;                                                                   \
	uint64_t bytes;                                                                           \
	CUresult ret;                                                                             \
                                                                                                  \
	measure_begin(&measure);                                                                  \
	ret = load;                                                                               \
	bytes = ret == CUDA_SUCCESS ? counted_bytes(&measure, image) : 0;                         \
	ret = count(&measure, ret, kind, (uintptr_t)made, bytes, ret == CUDA_SUCCESS ? size : 0); \
	ret = measure_finish(&measure, ret);                                                      \
	*out = made;                                                                              \
	return ret

CUresult EXPORT cuModuleLoad(CUmodule *out, const char *path)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoad)(out, path);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoad, &made, path), NULL, 0);
}

CUresult EXPORT cuModuleLoadData(CUmodule *out, const void *image)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadData)(out, image);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadData, &made, image), image, 0);
}

CUresult EXPORT cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int number,
				   int *options, void **values)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadDataEx)(out, image, number, options, values);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadDataEx, &made, image, number, options, values), image, 0);
}

CUresult EXPORT cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadFatBinary)(out, image);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadFatBinary, &made, image), image, 0);
}

CUresult EXPORT cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values,
				  unsigned int jit_count, int *options, void **values,
				  unsigned int number)
{
	if (NESTED || out == NULL)
		return DRIVER(cuLibraryLoadData)(out, code, jit, jit_values, jit_count, options,
						 values, number);
	LOAD(LEDGER_LIBRARY, CALL(cuLibraryLoadData, &made, code, jit, jit_values, jit_count, options,
				  values, number), code, image_bytes(code));
}

CUresult EXPORT cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values,
				      unsigned int jit_count, int *options, void **values,
				      unsigned int number)
{
	if (NESTED || out == NULL)
		return DRIVER(cuLibraryLoadFromFile)(out, path, jit, jit_values, jit_count, options,
						     values, number);
	LOAD(LEDGER_LIBRARY, CALL(cuLibraryLoadFromFile, &made, path, jit, jit_values, jit_count,
				  options, values, number), NULL, image_file_bytes(path));
}

/* True: it is our turn, and has to be left. */
static bool enter_turn(struct process **own)
{
	*own = process_own();
	return measure_enter(*own) != MUTEX_MISSED;
}

CUresult EXPORT cuModuleUnload(CUmodule module)
{
	struct ledger_entry entry;
	struct process *own;
	CUresult ret;
	bool entered;

	if (NESTED)
		return DRIVER(cuModuleUnload)(module);
	entered = enter_turn(&own);
	entry = charge_release(LEDGER_MODULE, (uintptr_t)module);
	ret = charge_released(&entry, CALL(cuModuleUnload, module));
	if (entered)
		mutex_leave(&own->modules);
	return ret;
}

static void give_parts_back(unsigned int number)
{
	struct ledger_entry part;

	for (unsigned int at = 0; ledger_next(LEDGER_LIVE, &at, &part);) {
		if (part.references / ASKS != number || !ledger_take(LEDGER_LIVE, part.key, &part))
			continue;
		charge_give_back(&part);
		at = 0;			/* others have moved up */
	}
}

CUresult EXPORT cuLibraryUnload(CUlibrary library)
{
	struct ledger_entry entry;
	struct process *own;
	bool entered, known;
	CUresult ret;

	if (NESTED)
		return DRIVER(cuLibraryUnload)(library);
	entered = enter_turn(&own);
	known = ledger_take(LEDGER_LIBRARY, (uintptr_t)library, &entry);
	ret = CALL(cuLibraryUnload, library);
	if (known && ret != CUDA_SUCCESS)
		ledger_put(entry);
	else if (known)
		give_parts_back(entry.references);
	if (entered)
		mutex_leave(&own->modules);
	return ret;
}

/* True: a library comes to life in the current context with this call, as far as we know. */
static bool first_in_context(CUlibrary library, unsigned int ask)
{
	struct ledger_entry entry, part;
	CUcontext current = NULL;

	if (!ledger_get(LEDGER_LIBRARY, (uintptr_t)library, &entry))
		return false;
	if (CALL(cuCtxGetCurrent, &current) != CUDA_SUCCESS)
		return true;
	return current != NULL &&
	       (!find_part(entry.references, (uintptr_t)current, &part) || (part.references & ask) == 0);
}

/* Room for what is about to be loaded, for nothing takes it back afterwards: as much as its image, if its size is
 * known, within bounds. False: there is none. */
static bool reserve_image(struct measure *measure, uint64_t image, struct charge *charge)
{
	uint64_t bytes = image > IMAGE_LEAST ? least(image, LARGE) : IMAGE_LEAST;

	if (!charge_card(charge, measure->card, bytes))
		return false;
	if (charge->card != NULL)
		measure->unknown += bytes;	/* what is counted is more by that */
	return true;
}

static uint64_t library_image(CUlibrary library)
{
	struct ledger_entry entry = { 0 };

	ledger_get(LEDGER_LIBRARY, (uintptr_t)library, &entry);
	return entry.bytes;
}

/* It is there already: over the limit the program is told so, and nothing else is given meanwhile. */
static CUresult beyond(const struct measure *measure, CUresult ret, uint64_t bytes)
{
	if (ret != CUDA_SUCCESS || bytes == 0 ||
	    usage_total(card_index(measure->card)) <= limits_room(measure->card))
		return ret;
	usage_refused(card_index(measure->card));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What it took counts in the place of what was reserved. */
static CUresult live(struct measure *measure, const struct charge *charge, CUresult ret, CUlibrary library,
		     unsigned int ask)
{
	uint64_t bytes = measure_taken(measure);
	struct ledger_entry entry, part;

	if (measure->card == NULL)
		return ret;
	usage_add(card_index(measure->card), bytes);
	usage_release(card_index(measure->card), charge->bytes);
	if (!ledger_get(LEDGER_LIBRARY, (uintptr_t)library, &entry))
		return ret;
	find_part(entry.references, (uintptr_t)measure->context, &part);
	part.bytes += bytes;
	part.references |= ask;
	part.card = (int16_t)card_index(measure->card);
	ledger_put(part);
	return beyond(measure, ret, bytes);
}

/* `nested`: the hook is called by the driver below another one. */
#define ASK(nested, name, library, ask, ...)                                                      \
	struct measure measure;                                                                   \
	struct charge charge;                                                                     \
                                                                                                  \
	if (nested || !first_in_context(library, ask))                                            \
		return DRIVER(name)(__VA_ARGS__);                                                 \
	measure_begin(&measure);                                                                  \
	if (!reserve_image(&measure, library_image(library), &charge))                            \
		return measure_finish(&measure, charge.why);                                      \
	return measure_finish(&measure, live(&measure, &charge, CALL(name, __VA_ARGS__), library, ask))

CUresult EXPORT cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
	ASK(NESTED, cuLibraryGetModule, library, ASKED_FOR_PART, out, library);
}

static CUresult get_kernel(CUkernel *out, CUlibrary library, const char *name)
{
	ASK(false, cuLibraryGetKernel, library, ASKED_FOR_PART, out, library, name);
}

CUresult EXPORT cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
	CUkernel kernel;
	CUresult ret;

	if (NESTED || out == NULL)
		return DRIVER(cuLibraryGetKernel)(out, library, name);
	kernel = *out;
	ret = get_kernel(&kernel, library, name);
	if (ret == CUDA_SUCCESS)
		local_kernel(kernel);
	*out = kernel;
	return ret;
}

CUresult EXPORT cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, CUlibrary library,
				   const char *name)
{
	ASK(NESTED, cuLibraryGetGlobal, library, ASKED_FOR_PART, out, bytes, library, name);
}

CUresult EXPORT cuLibraryGetManaged(CUdeviceptr *out, size_t *bytes, CUlibrary library,
				    const char *name)
{
	ASK(NESTED, cuLibraryGetManaged, library, ASKED_FOR_PART, out, bytes, library, name);
}

/* NULL: the driver does not say of which library a kernel is (before CUDA 12.5), or there is no such kernel. */
static CUlibrary library_of(CUkernel kernel)
{
	CUlibrary library = NULL;

	return CALL(cuKernelGetLibrary, &library, kernel) == CUDA_SUCCESS ? library : NULL;
}

/* Does code come with the first function that is asked for? Drivers before CUDA 11.7 know no such thing. */
static bool loads_lazily(void)
{
	int mode = 0;

	return CALL(cuModuleGetLoadingMode, &mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY;
}

static CUresult get_function(void **out, CUkernel kernel)
{
	CUlibrary library = library_of(kernel);

	if (!first_in_context(library, ASKED_FOR_PART) && !loads_lazily())
		return CALL(cuKernelGetFunction, out, kernel);
	ASK(false, cuKernelGetFunction, library, ASKED_FOR_FUNCTION, out, kernel);
}

CUresult EXPORT cuKernelGetFunction(void **out, CUkernel kernel)
{
	void *function;
	CUresult ret;

	if (NESTED || out == NULL || kernel == NULL)
		return DRIVER(cuKernelGetFunction)(out, kernel);
	function = *out;
	ret = get_function(&function, kernel);
	if (ret == CUDA_SUCCESS)
		local_function(function);
	*out = function;
	return ret;
}

/* True: no function of the module was asked for yet. One of which nothing is known counts by NVML's list. */
static bool first_of_module(CUmodule module)
{
	struct ledger_entry entry;

	return ledger_get(LEDGER_MODULE, (uintptr_t)module, &entry) && entry.references == 1;
}

/* As live(): the first function's code is the module's. */
static CUresult module_live(struct measure *measure, const struct charge *charge, CUresult ret, CUmodule module)
{
	uint64_t bytes = measure_taken(measure);
	struct ledger_entry entry;

	if (measure->card == NULL)
		return ret;
	if (ret == CUDA_SUCCESS && ledger_refer(LEDGER_MODULE, (uintptr_t)module, 1) == 2 &&
	    ledger_get(LEDGER_MODULE, (uintptr_t)module, &entry) && entry.card == card_index(measure->card)) {
		usage_add(entry.card, bytes);
		ledger_set(LEDGER_MODULE, (uintptr_t)module, entry.bytes + bytes, &entry);
	}
	usage_release(card_index(measure->card), charge->bytes);
	return beyond(measure, ret, bytes);
}

static CUresult get_of_module(void **out, CUmodule module, const char *name)
{
	struct measure measure;
	struct charge charge;

	if (!first_of_module(module) || !loads_lazily())
		return CALL(cuModuleGetFunction, out, module, name);
	measure_begin(&measure);
	if (!reserve_image(&measure, 0, &charge))
		return measure_finish(&measure, charge.why);
	return measure_finish(&measure, module_live(&measure, &charge, CALL(cuModuleGetFunction, out, module, name), module));
}

CUresult EXPORT cuModuleGetFunction(void **out, CUmodule module, const char *name)
{
	void *function;
	CUresult ret;

	if (NESTED || out == NULL || name == NULL)
		return DRIVER(cuModuleGetFunction)(out, module, name);
	function = *out;
	ret = get_of_module(&function, module, name);
	if (ret == CUDA_SUCCESS)
		local_function(function);
	*out = function;
	return ret;
}
