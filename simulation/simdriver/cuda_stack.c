/* cuda_stack.c - the contexts of this process that live, and each thread's stack of them. */
#define _GNU_SOURCE
#include "cuda_core.h"

#define STACK_MAX 32

static CUcontext alive;			/* all contexts of this process */
static __thread CUcontext stack[STACK_MAX];
static __thread int depth;

void cu_add_context(CUcontext ctx)
{
	ctx->next = alive;
	alive = ctx;
}

void cu_remove_context(CUcontext ctx)
{
	for (CUcontext *at = &alive; *at != NULL; at = &(*at)->next) {
		if (*at != ctx)
			continue;
		*at = ctx->next;
		break;
	}
}

bool cu_lives(CUcontext ctx)
{
	for (CUcontext c = alive; c != NULL; c = c->next)
		if (c == ctx)
			return true;
	return false;
}

CUcontext cu_current(void)
{
	return depth > 0 && cu_lives(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

CUresult cu_push(CUcontext ctx)
{
	if (!cu_lives(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

void cu_pop(void)
{
	if (depth > 0)
		depth--;
}

CUresult cu_enter_ctx(const char *call, CUcontext *ctx)
{
	CUresult ret = cu_enter(call);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	*ctx = cu_current();
	cu_unlock();
	if (*ctx == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	return sim_lost((*ctx)->dev->card->entry) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
