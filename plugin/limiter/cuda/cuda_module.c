/* cuda_module.c - code and global variables of modules and libraries.
 *
 * No size in an image says what it takes: code is compiled, chosen among several, unpacked, or left
 * until it is needed; a variable of gigabytes is a few letters. So it is measured: what the card has
 * less of afterwards, and the container does not know of. Others on the card disturb that, so a large
 * one is measured again while it is unloaded and loaded, and the least of three counts. What the
 * driver loads at a kernel's first launch is not seen.
 *
 * One at a time in the container: of two measured at once one would be counted for the other. But
 * the driver may compile for many seconds, or wait for what is in flight, and that for a thread that
 * wants to load. So who does not get its turn within two seconds measures all the same. In a process
 * the turn is a mutex; among processes the kernel's lock on the usage file, which goes with its
 * holder. It is not the one under which slots are claimed (usage_file.c): a program that starts
 * meanwhile must not wait for it. */
#define _GNU_SOURCE
#include "account.h"
#include "settings.h"
#include "system.h"

#define LARGE (16ull << 20)		/* above: measured again */

#ifndef F_OFD_SETLK			/* glibc has it since 2.20, Linux since 3.15 */
#define F_OFD_SETLK 37
#endif

#define TURN_NS 2000000000u		/* for so long a turn is waited for */
#define LOOK_NS 1000000

struct measure {
	int turn;			/* the locked file; -1: none */
	struct process *own;		/* whose mutex is held; NULL: it is not */
	struct card *card;
	CUcontext context;
	int mode;
	uint64_t unknown;		/* bytes of the card that are free, or counted to the container */
};

static uint64_t unknown_bytes(const struct measure *measure)
{
	size_t free_bytes = 0, total = 0;

	accounts_renew();
	if (CALL(cuMemGetInfo_v2, &free_bytes, &total) != CUDA_SUCCESS)
		return 0;
	return free_bytes + usage_total(card_index(measure->card));
}

/* F_WRLCK or F_UNLCK; a child that another thread forks meanwhile has the description as well, so that
 * closing it would not end the turn. */
static bool turn(int file, short type)
{
	struct flock all = { .l_type = type, .l_whence = SEEK_SET };

	return system_call(SYS_fcntl, file, F_OFD_SETLK, (long)&all, 0, 0, 0) == 0;
}

static int wait_turn(void)
{
	char path[2 * SETTING_MAX];
	int file = -1;

	if (setting_path(path, sizeof(path), setting_folder(), "usage"))
		file = system_open(path, O_RDWR);
	for (unsigned int i = 0; file >= 0 && !turn(file, F_WRLCK) && i < TURN_NS / LOOK_NS; i++)
		system_sleep(LOOK_NS);
	return file;
}

static enum mutex_entry enter(struct process *own)
{
	return own != NULL ? mutex_enter_for(&own->modules, THREAD, TURN_NS) : MUTEX_MISSED;
}

static void begin(struct measure *measure)
{
	struct process *own = process_own();
	enum mutex_entry entry = enter(own);

	*measure = (struct measure){ .own = entry != MUTEX_MISSED ? own : NULL, .mode = CU_CAPTURE_RELAXED,
				     .turn = entry == MUTEX_ENTERED ? wait_turn() : -1 };
	measure->card = charge_current_card(&measure->context);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	if (measure->card != NULL)
		measure->unknown = unknown_bytes(measure);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
}

/* What was taken since the last look; the next one counts from here. */
static uint64_t taken(struct measure *measure, bool back)
{
	uint64_t before = measure->unknown;

	if (measure->card == NULL)
		return 0;
	measure->mode = CU_CAPTURE_RELAXED;
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	measure->unknown = unknown_bytes(measure);
	CALL(cuThreadExchangeStreamCaptureMode, &measure->mode);
	if (back)
		return measure->unknown > before ? measure->unknown - before : 0;
	return before > measure->unknown ? before - measure->unknown : 0;
}

static CUresult finish(const struct measure *measure, CUresult ret)
{
	if (measure->turn >= 0) {
		turn(measure->turn, F_UNLCK);
		system_close(measure->turn);
	}
	if (measure->own != NULL)
		mutex_leave(&measure->own->modules);
	return ret;
}

static uint64_t least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

/* Count it, or unload it. */
static CUresult count(struct measure *measure, CUresult ret, enum ledger_kind kind, uint64_t key,
		      uint64_t bytes)
{
	struct charge charge;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (!charge_card(&charge, measure->card, bytes)) {
		if (kind == LEDGER_MODULE)
			CALL(cuModuleUnload, (CUmodule)(uintptr_t)key);
		else
			CALL(cuLibraryUnload, (CUlibrary)(uintptr_t)key);
		return charge.why;
	}
	charge.context = (uintptr_t)measure->context;
	if (charge.card == NULL && kind == LEDGER_LIBRARY)	/* it is loaded into no context yet */
		ledger_put((struct ledger_entry){ .key = key, .kind = (uint16_t)kind, .card = -1 });
	return charge_settle(&charge, ret, kind, key);
}

/* Load by `load`, an expression; twice more or less where it seems large. */
#define LOAD(kind, load, unload)                                                                  \
	struct measure measure;                                                                   \
	uint64_t bytes;                                                                           \
	CUresult ret;                                                                             \
                                                                                                  \
	begin(&measure);                                                                          \
	ret = load;                                                                               \
	bytes = ret == CUDA_SUCCESS ? taken(&measure, false) : 0;                                 \
	if (bytes > LARGE && unload == CUDA_SUCCESS) {                                            \
		bytes = least(bytes, taken(&measure, true));                                      \
		ret = load;                                                                       \
		bytes = ret == CUDA_SUCCESS ? least(bytes, taken(&measure, false)) : 0;           \
	}                                                                                         \
	return finish(&measure, count(&measure, ret, kind, ret == CUDA_SUCCESS ?                  \
				      (uintptr_t)*out : 0, bytes))

CUresult EXPORT cuModuleLoad(CUmodule *out, const char *path)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoad)(out, path);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoad, out, path), CALL(cuModuleUnload, *out));
}

CUresult EXPORT cuModuleLoadData(CUmodule *out, const void *image)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadData)(out, image);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadData, out, image), CALL(cuModuleUnload, *out));
}

CUresult EXPORT cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int number,
				   int *options, void **values)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadDataEx)(out, image, number, options, values);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadDataEx, out, image, number, options, values),
	     CALL(cuModuleUnload, *out));
}

CUresult EXPORT cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
	if (NESTED || out == NULL)
		return DRIVER(cuModuleLoadFatBinary)(out, image);
	LOAD(LEDGER_MODULE, CALL(cuModuleLoadFatBinary, out, image), CALL(cuModuleUnload, *out));
}

CUresult EXPORT cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values,
				  unsigned int jit_count, int *options, void **values,
				  unsigned int number)
{
	if (NESTED || out == NULL)
		return DRIVER(cuLibraryLoadData)(out, code, jit, jit_values, jit_count, options,
						 values, number);
	LOAD(LEDGER_LIBRARY, CALL(cuLibraryLoadData, out, code, jit, jit_values, jit_count, options,
				  values, number), CALL(cuLibraryUnload, *out));
}

CUresult EXPORT cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values,
				      unsigned int jit_count, int *options, void **values,
				      unsigned int number)
{
	if (NESTED || out == NULL)
		return DRIVER(cuLibraryLoadFromFile)(out, path, jit, jit_values, jit_count, options,
						     values, number);
	LOAD(LEDGER_LIBRARY, CALL(cuLibraryLoadFromFile, out, path, jit, jit_values, jit_count,
				  options, values, number), CALL(cuLibraryUnload, *out));
}

#define UNLOAD(name, kind, key)                                                                   \
	do {                                                                                      \
		struct process *own;                                                              \
		struct ledger_entry entry;                                                        \
		CUresult ret;                                                                     \
		if (NESTED)                                                                       \
			return DRIVER(name)(key);                                                 \
		own = process_own();                                                              \
		if (enter(own) == MUTEX_MISSED)                                                   \
			own = NULL;                                                               \
		entry = charge_release(kind, (uintptr_t)(key));                                   \
		ret = charge_released(&entry, CALL(name, key));                                   \
		if (own != NULL)                                                                  \
			mutex_leave(&own->modules);                                               \
		return ret;                                                                       \
	} while (0)

CUresult EXPORT cuModuleUnload(CUmodule module)
{
	UNLOAD(cuModuleUnload, LEDGER_MODULE, module);
}

CUresult EXPORT cuLibraryUnload(CUlibrary library)
{
	UNLOAD(cuLibraryUnload, LEDGER_LIBRARY, library);
}

/* True: a library comes to life in the current context with this call, as far as we know. */
static bool first_in_context(CUlibrary library, struct ledger_entry *entry)
{
	CUcontext current = NULL;

	return ledger_get(LEDGER_LIBRARY, (uintptr_t)library, entry) &&
	       (entry->references < 2 || (CALL(cuCtxGetCurrent, &current) == CUDA_SUCCESS &&
					  entry->of != (uintptr_t)current));
}

/* It is there already: over the limit the program is told so, and nothing else is given meanwhile. On a card that
 * cannot be counted it does not come so far. */
static CUresult live(struct measure *measure, CUresult ret, CUlibrary library)
{
	uint64_t bytes = taken(measure, false);
	struct ledger_entry entry;

	if (measure->card == NULL || card_index(measure->card) < 0 || !ledger_take(LEDGER_LIBRARY, (uintptr_t)library, &entry))
		return ret;
	usage_add(card_index(measure->card), bytes);
	entry.card = (int16_t)card_index(measure->card);
	entry.bytes += bytes;
	entry.of = (uintptr_t)measure->context;
	entry.references = 2;
	ledger_put(entry);
	if (ret != CUDA_SUCCESS || bytes == 0 ||
	    usage_total(card_index(measure->card)) <= limits_room(measure->card))
		return ret;
	usage_refused(card_index(measure->card));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

#define ASK(name, library, ...)                                                                   \
	struct ledger_entry entry;                                                                \
	struct measure measure;                                                                   \
                                                                                                  \
	if (NESTED || !first_in_context(library, &entry))                                         \
		return DRIVER(name)(__VA_ARGS__);                                                 \
	begin(&measure);                                                                          \
	if (measure.card != NULL && card_index(measure.card) < 0)                                 \
		return finish(&measure, charge_refused(measure.card));                            \
	return finish(&measure, live(&measure, CALL(name, __VA_ARGS__), library))

CUresult EXPORT cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
	ASK(cuLibraryGetModule, library, out, library);
}

CUresult EXPORT cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
	ASK(cuLibraryGetKernel, library, out, library, name);
}

CUresult EXPORT cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, CUlibrary library,
				   const char *name)
{
	ASK(cuLibraryGetGlobal, library, out, bytes, library, name);
}

CUresult EXPORT cuLibraryGetManaged(CUdeviceptr *out, size_t *bytes, CUlibrary library,
				    const char *name)
{
	ASK(cuLibraryGetManaged, library, out, bytes, library, name);
}
