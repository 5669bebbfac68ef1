/* images.c - the size of code by its first words; what is short stands right before memory that nobody may read. */
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../cuda/image.h"

#define PAGE 4096

static char *page;
static int wrong;

/* Copy it to the end of the page. */
static void *at_end(const void *image, size_t bytes)
{
	return memcpy(page + PAGE - bytes, image, bytes);
}

static void same(const char *what, const char *figure, uint64_t found, uint64_t bytes)
{
	if (found == bytes)
		return;
	printf("%s%s: %llu bytes, not %llu\n", what, figure, (unsigned long long)found, (unsigned long long)bytes);
	wrong = 1;
}

static void expect(const char *what, const void *image, uint64_t bytes)
{
	same(what, "", image_bytes(image), bytes);
}

static void most(const char *what, const void *image, uint64_t bytes)
{
	same(what, " takes at most", image_most(image), bytes);
}

/* Of an ELF file the bytes that it has, and the variables of which it has none. */
static void try_most(void)
{
	struct { Elf64_Ehdr head; Elf64_Shdr sections[3]; } file = {
		.head = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_shoff = sizeof(Elf64_Ehdr), .e_shnum = 3,
			  .e_shentsize = sizeof(Elf64_Shdr) },
		.sections = { { .sh_type = SHT_NOBITS, .sh_size = 1000 }, { .sh_type = SHT_PROGBITS, .sh_size = 7 },
			      { .sh_type = SHT_NOBITS, .sh_size = 20000 } },
	};

	most("none", NULL, UINT64_MAX);
	most("PTX", at_end("//\n.version 8.0\n", 17), UINT64_MAX);
	most("an ELF file", at_end(&file, sizeof(file)), sizeof(file) + 21000);
	file.sections[2].sh_size = UINT64_MAX;
	most("an ELF file of sizes that nothing has", at_end(&file, sizeof(file)), UINT64_MAX);
	file.head.e_shentsize = 8;
	most("an ELF file of strange sections", at_end(&file, sizeof(file)), UINT64_MAX);
	file.head.e_ident[EI_CLASS] = ELFCLASS32;
	most("an ELF file of 32 bits", at_end(&file, sizeof(file)), UINT64_MAX);
}

int main(int argc, char **argv)
{
	struct { uint32_t magic; uint16_t version, header; uint64_t bytes; } fat = { 0xba55ed50, 1, 16, 1000 };
	struct { uint32_t magic, version; const void *image; void *file; } pointer = { 0x466243b1, 1, &fat, NULL };
	Elf64_Ehdr elf = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_shoff = 5000, .e_shnum = 10,
			   .e_shentsize = sizeof(Elf64_Shdr) };

	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || mprotect(page + PAGE, PAGE, PROT_NONE) != 0)
		return 1;
	expect("none", NULL, 0);
	expect("an empty text", at_end("", 1), 0);
	expect("a letter", at_end("a", 2), 1);
	expect("PTX", at_end("//\n.version 8.0\n", 17), 16);
	expect("a byte of an ELF file", at_end("\x7f\0", 2), 0);
	expect("no text", at_end("\xff", 1), 0);
	expect("ELF", at_end(&elf, sizeof(elf)), 5000 + 10 * sizeof(Elf64_Shdr));
	expect("a fat binary", at_end(&fat, sizeof(fat)), 1016);
	expect("what points to one", &pointer, 1016);
	try_most();
	pointer.image = NULL;
	expect("what points to none", &pointer, 0);
	return wrong || argc < 2 || image_file_bytes(argv[1]) == 0 || image_file_bytes("/nonexistent") != 0;
}
