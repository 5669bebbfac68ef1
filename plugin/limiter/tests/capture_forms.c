/* capture_forms.c - each form in which a program can begin and end a capture, on a model of the driver: it gets what the
 * program gave, and what began and has not ended is counted. Prints nothing where that is so. */
#include <string.h>

#include "../cuda/capture.h"
#include "must.h"

#define ARGUMENTS 6
#define FAILED 999

__thread int charge_depth __attribute__((tls_model("initial-exec")));
struct process *process_known;

static struct process own;
static const char *called;
static uintptr_t got[ARGUMENTS];
static CUresult answer;

struct process *process_find(void)
{
	return &own;
}

/* Stands for a function of any form: what it does not get it does not look at. */
static CUresult driver(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)
{
	memcpy(got, (uintptr_t[]){ a, b, c, d, e, f }, sizeof(got));
	return answer;
}

/* The compiler is not to see which it is: all forms come to the one. */
static void *model(void)
{
	void *volatile function = (void *)driver;

	return function;
}

uint64_t bucket_now(void)
{
	return 0;
}

#undef NESTED
#define NESTED false
#undef DRIVER
#define DRIVER(name) ((__typeof__(&name))model())
#undef CALL
#define CALL(name, ...) (called = #name, DRIVER(name)(__VA_ARGS__))
#include "../cuda/cuda_capture.c"

typedef CUresult (*form)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct function {
	const char *name;
	void *hook;
	unsigned int count;		/* of its arguments */
};

#define FUNCTION(name, count) { #name, (void *)name, count }

static const struct function begins[] = {
	FUNCTION(cuStreamBeginCapture, 1),
	FUNCTION(cuStreamBeginCapture_ptsz, 1),
	FUNCTION(cuStreamBeginCapture_v2, 2),
	FUNCTION(cuStreamBeginCapture_v2_ptsz, 2),
	FUNCTION(cuStreamBeginCaptureToGraph, 6),
	FUNCTION(cuStreamBeginCaptureToGraph_ptsz, 6),
	FUNCTION(cuStreamBeginRecaptureToGraph, 5),
	FUNCTION(cuStreamBeginRecaptureToGraph_ptsz, 5),
	FUNCTION(cuStreamBeginCaptureToCig, 2),
	FUNCTION(cuStreamBeginCaptureToCig_ptsz, 2),
};

static const struct function ends[] = {
	FUNCTION(cuStreamEndCapture, 2),
	FUNCTION(cuStreamEndCapture_ptsz, 2),
	FUNCTION(cuStreamEndCaptureToCig, 1),
	FUNCTION(cuStreamEndCaptureToCig_ptsz, 1),
};

static void call(const struct function *function, CUresult ret, unsigned int counted)
{
	memset(got, 0, sizeof(got));
	called = "";
	answer = ret;
	MUST(((form)function->hook)(1, 2, 3, 4, 5, 6) == ret);
	MUST(strcmp(called, function->name) == 0);
	for (unsigned int i = 0; i < function->count; i++)
		MUST(got[i] == i + 1);
	MUST(own.captures == counted);
}

int main(void)
{
	unsigned int flag = 0;

	for (int unseen = 0; unseen < 2; unseen++) {
		for (unsigned int i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
			for (unsigned int j = 0; j < sizeof(ends) / sizeof(ends[0]); j++) {
				call(&ends[j], CUDA_SUCCESS, flag);
				call(&begins[i], FAILED, flag);
				call(&begins[i], CUDA_SUCCESS, flag + 1);
				call(&begins[i], CUDA_SUCCESS, flag + 2);
				call(&ends[j], FAILED, flag + 2);
				call(&ends[j], CUDA_SUCCESS, flag + 1);
				call(&ends[j], CUDA_SUCCESS, flag);
			}
		capture_unseen();
		flag = UNSEEN;
	}
	return 0;
}
