/* cuda_image.c - the size of an image, by its first words: an ELF file, a fat binary or what points to one, PTX. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "image.h"
#include "system.h"

/* As nvcc lays them out, and fatbinary.h of the CUDA toolkit describes them. */
struct fat_pointer {
	uint32_t magic, version;
	const void *image;
};

struct fat_header {
	uint32_t magic;
	uint16_t version, header;
	uint64_t bytes;			/* behind the header */
};

#define FAT_POINTER "\xb1\x43\x62\x46"
#define FAT_HEADER "\x50\xed\x55\xba"

/* The text may be shorter than what it is compared with: it ends at the first difference. */
static bool begins_with(const char *image, const char *with)
{
	for (int i = 0; i < 4; i++)
		if (image[i] != with[i])
			return false;
	return true;
}

static uint64_t elf_bytes(const char *image)
{
	Elf64_Ehdr head;

	memcpy(&head, image, EI_NIDENT);
	if (head.e_ident[EI_CLASS] != ELFCLASS64)
		return 0;
	memcpy(&head, image, sizeof(head));
	return head.e_shoff + (uint64_t)head.e_shnum * head.e_shentsize;
}

static uint64_t text_bytes(const char *image)
{
	uint64_t bytes = 0;

	if (*image != '\n' && *image != '\t' && (*image < ' ' || *image > '~'))
		return 0;
	while (bytes < IMAGE_MOST && image[bytes] != '\0')
		bytes++;
	return bytes;
}

uint64_t image_bytes(const void *image)
{
	struct fat_header head;
	struct fat_pointer to;

	if (image == NULL)
		return 0;
	if (begins_with(image, FAT_POINTER)) {
		memcpy(&to, image, sizeof(to));
		image = to.image;
		if (image == NULL || !begins_with(image, FAT_HEADER))
			return 0;
	}
	if (begins_with(image, FAT_HEADER)) {
		memcpy(&head, image, sizeof(head));
		return head.header + head.bytes;
	}
	return begins_with(image, ELFMAG) ? elf_bytes(image) : text_bytes(image);
}

uint64_t image_most(const void *image)
{
	uint64_t most;
	Elf64_Ehdr head;
	Elf64_Shdr section;

	if (image == NULL || !begins_with(image, ELFMAG) || (most = elf_bytes(image)) == 0)
		return UINT64_MAX;
	memcpy(&head, image, sizeof(head));
	if (head.e_shentsize != sizeof(section))
		return UINT64_MAX;
	for (unsigned int i = 0; i < head.e_shnum; i++) {
		memcpy(&section, (const char *)image + head.e_shoff + (uint64_t)i * sizeof(section), sizeof(section));
		if (section.sh_type == SHT_NOBITS && __builtin_add_overflow(most, section.sh_size, &most))
			return UINT64_MAX;
	}
	return most;
}

uint64_t image_file_bytes(const char *path)
{
	struct stat st;

	return path != NULL && system_stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}
