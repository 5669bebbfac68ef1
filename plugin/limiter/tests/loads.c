/* loads.c - modules while a neighbour takes memory: `loads DRIVER` (nullloads.c). The driver loads each once, so that what
 * it writes into the program's options is of that load; and of what the neighbour takes no more counts than an image can
 * take, where its form says that. */
#include <elf.h>
#include <string.h>

#include "client.h"

#define SLACK (16 * MIB)
#define VARIABLE (2 * MIB)

static int (*loads)(void);
static int loaded;

static struct {
	Elf64_Ehdr head;
	Elf64_Shdr sections[2];
} elf = {
	.head = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_shoff = sizeof(Elf64_Ehdr), .e_shnum = 2,
		  .e_shentsize = sizeof(Elf64_Shdr) },
	.sections = { { .sh_type = SHT_NULL },
		      { .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = VARIABLE } },
};

static void is_of_one_load(const char *log, void *filled)
{
	MUST(loads() == ++loaded);
	MUST(loaded > 1 || (strcmp(log, "42 registers") == 0 && (uintptr_t)filled == strlen(log)));
}

/* Returns what counts for it. */
static uint64_t module(const void *image)
{
	char log[64] = "";
	int options[] = { 3, 4 };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	uint64_t before = client_free(), after;
	CUmodule made;

	MUST(CU(cuModuleLoadDataEx)(&made, image, 2, options, values) == CUDA_SUCCESS);
	is_of_one_load(log, values[1]);
	after = client_free();
	MUST(CU(cuModuleUnload)(made) == CUDA_SUCCESS && client_free() == before);
	return before - after;
}

static uint64_t library(const void *image)
{
	char log[64] = "";
	int options[] = { 3, 4 };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	uint64_t before = client_free(), after;
	CUlibrary made;

	MUST(CU(cuLibraryLoadData)(&made, image, options, values, 2, NULL, NULL, 0) == CUDA_SUCCESS);
	is_of_one_load(log, values[1]);
	after = client_free();
	MUST(CU(cuLibraryUnload)(made) == CUDA_SUCCESS && client_free() == before);
	return before - after;
}

int main(int argc, char **argv)
{
	void *driver;

	MUST(argc == 2);
	client_open("libcuda.so.1");
	client_start();
	driver = dlopen(argv[1], RTLD_NOW);
	loads = driver != NULL ? (__typeof__(loads))dlsym(driver, "null_driver_loads") : NULL;
	MUST(loads != NULL);
	MUST(module("20") == 50 * MIB);
	MUST(library("20") == 50 * MIB);
	MUST(module(&elf) == SLACK + VARIABLE + sizeof(elf));
	MUST(library(&elf) == SLACK + VARIABLE + sizeof(elf));
	return 0;
}
