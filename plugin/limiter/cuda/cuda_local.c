/* cuda_local.c - local memory: what each thread of a kernel has beyond its registers.
 *
 * Assumed, by what NVIDIA documents of CU_LIMIT_STACK_SIZE and CU_CTX_LMEM_RESIZE_TO_MAX: the driver has it for all threads
 * that the card can run at once, as much for each as the stack that was set, or as the kernel needs that needs most of those
 * that were launched in the context, and it keeps it. What the first stack takes is part of the context (cuda_stack.c). */
#include "local.h"
#include "stack.h"

#define LOCAL_BYTES 3			/* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
#define LEAST_STACK 1024		/* what no context has less of */
#define UNKNOWN UINT64_MAX		/* it was not asked for yet */

enum { IS_FUNCTION, IS_KERNEL };	/* what a handle is: `references` of its entry */

/* What this thread launched last, a kernel that needs much: it has it. */
static __thread struct {
	const void *function;
	CUstream stream;
	CUcontext context;
	unsigned int epoch, number, streams;
} last __attribute__((tls_model("initial-exec")));

/* Which kernels need little, of a process: a word for each, its address with how often a function had been asked for, in
 * the bits that no address has. A further one may have the handle of one that is gone. */
static uint64_t harmless_word(const void *function, unsigned int number)
{
	return (uint64_t)(uintptr_t)function ^ (uint64_t)number << 48;
}

static uint64_t *harmless_place(struct process *own, const void *function)
{
	return &own->harmless[((uintptr_t)function * 0x9e3779b97f4a7c15u) >> 32 & (HARMLESS_MAX - 1)];
}

static void remember(const void *handle, unsigned int kind)
{
	struct process *own = process_own();

	if (own == NULL || !ledger_put((struct ledger_entry){ .key = (uintptr_t)handle, .bytes = UNKNOWN,
							      .references = kind, .kind = LEDGER_LOCAL, .card = -1 }))
		return;
	if (__atomic_add_fetch(&own->locals, 1, __ATOMIC_RELEASE) == 0)
		__atomic_add_fetch(&own->locals, 1, __ATOMIC_RELEASE);
}

void local_function(const void *function)
{
	remember(function, IS_FUNCTION);
}

void local_kernel(CUkernel kernel)
{
	remember(kernel, IS_KERNEL);
}

static CUresult ask_one(const struct ledger_entry *entry, CUdevice device, int *bytes)
{
	*bytes = 0;
	return entry->references == IS_FUNCTION ?
		CALL(cuFuncGetAttribute, bytes, LOCAL_BYTES, (void *)(uintptr_t)entry->key) :
		CALL(cuKernelGetAttribute, bytes, LOCAL_BYTES, (CUkernel)(uintptr_t)entry->key, device);
}

/* What it needs, a kernel the most of any device; false: the driver does not say so of the current one. */
static bool ask(const struct ledger_entry *entry, uint64_t *out)
{
	int bytes = 0, most = 0, count = 1, mode = CU_CAPTURE_RELAXED;
	CUdevice device = 0;
	bool said;

	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	said = CALL(cuCtxGetDevice, &device) == CUDA_SUCCESS && ask_one(entry, device, &most) == CUDA_SUCCESS;
	if (said && entry->references == IS_KERNEL && CALL(cuDeviceGetCount, &count) == CUDA_SUCCESS)
		for (CUdevice other = 0; other < count; other++)
			if (other != device && ask_one(entry, other, &bytes) == CUDA_SUCCESS && bytes > most)
				most = bytes;
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	*out = most > LEAST_STACK ? (uint64_t)most : 0;
	return said;
}

/* Most need little: of those nothing is remembered any more. Where the driver says nothing it is asked again. */
static uint64_t need(struct ledger_entry *entry)
{
	uint64_t bytes;

	if (entry->bytes != UNKNOWN)
		return entry->bytes;
	if (!ask(entry, &bytes))
		return 0;
	entry->bytes = bytes;
	if (bytes != 0)
		ledger_put(*entry);
	else
		ledger_take(LEDGER_LOCAL, entry->key, entry);
	return bytes;
}

/* In the current context. */
static CUresult reserve(struct ledger_entry *entry)
{
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	uint64_t bytes;

	if (card == NULL)
		return CUDA_SUCCESS;
	bytes = need(entry);
	return bytes == 0 || stack_of_kernel(card, context, bytes) ? CUDA_SUCCESS : charge_refused(card);
}

static __attribute__((noinline, cold)) CUresult first_launch(struct ledger_entry *entry, CUstream stream,
							     CUcontext current)
{
	CUcontext of = charge_other_context(stream, current), popped;
	CUresult ret;

	if (of != NULL && CALL(cuCtxPushCurrent_v2, of) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	ret = reserve(entry);
	if (of != NULL)
		CALL(cuCtxPopCurrent_v2, &popped);
	return ret;
}

static __attribute__((noinline)) CUresult look(struct process *own, const void *function, CUstream stream,
					       unsigned int number)
{
	unsigned int epoch = __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE);
	unsigned int streams = __atomic_load_n(&own->streams_ended, __ATOMIC_ACQUIRE);
	struct ledger_entry entry;
	CUcontext current = NULL;
	CUresult ret;

	if (CALL(cuCtxGetCurrent, &current) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (last.function == function && last.stream == stream && last.context == current && last.epoch == epoch &&
	    last.number == number && last.streams == streams)
		return CUDA_SUCCESS;
	if (!ledger_get(LEDGER_LOCAL, (uintptr_t)function, &entry)) {
		__atomic_store_n(harmless_place(own, function), harmless_word(function, number), __ATOMIC_RELAXED);
		return CUDA_SUCCESS;
	}
	ret = first_launch(&entry, stream, current);
	if (ret == CUDA_SUCCESS && entry.bytes != UNKNOWN) {
		last.function = function;
		last.stream = stream;
		last.context = current;
		last.epoch = epoch;
		last.number = number;
		last.streams = streams;
	}
	return ret;
}

CUresult local_launch(const void *function, CUstream stream)
{
	struct process *own = process_own();
	unsigned int number = own != NULL ? __atomic_load_n(&own->locals, __ATOMIC_ACQUIRE) : 0;

	if (number == 0 || __atomic_load_n(harmless_place(own, function), __ATOMIC_RELAXED) ==
	    harmless_word(function, number))
		return CUDA_SUCCESS;
	return look(own, function, stream, number);
}

void local_stream_ends(void)
{
	struct process *own = process_own();

	if (own != NULL)
		__atomic_add_fetch(&own->streams_ended, 1, __ATOMIC_RELEASE);
}
