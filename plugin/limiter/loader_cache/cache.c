/* cache.c - see cache.h.
 *
 * A cache is a head, entries in falling order of their names, their texts, and since glibc 2.33 an extension.
 * Older ldconfigs write the form of libc5 before it, which no glibc reads if the new form is alone there
 * (`_dl_load_cache_lookup`): only the new form is written. Numbers are places from the head on, those of the
 * extension from the beginning of the file (`cache_extension_load`). */
#include <stdint.h>
#include <string.h>

#include "cache.h"
#include "text.h"

#define MAGIC "glibc-ld.so.cache1.1"
#define OLD_MAGIC "ld.so-1.7.0"
#define EXTENSION_MAGIC 0xeaa42174u
#define BYTE_ORDER_AT_FLAGS 3u
#define LITTLE_ENDIAN_FLAG 2u

#if defined(__aarch64__)
#define OUR_FLAGS 0x0a03	/* FLAG_AARCH64_LIB64 | FLAG_ELF_LIBC6 */
#else
#define OUR_FLAGS 0x0303	/* FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 */
#endif

enum { HWCAPS_TAG = 1, MOST_SECTIONS = 16, OLD_HEAD = 16, OLD_ENTRY = 12 };

struct head {
	char magic[sizeof(MAGIC) - 1];
	uint32_t count;
	uint32_t text_bytes;
	uint8_t flags;
	uint8_t unused[3];
	uint32_t extension;
	uint32_t also_unused[3];
};

struct entry {
	uint32_t flags;
	uint32_t name;
	uint32_t path;
	uint32_t unused;
	uint64_t hwcap;
};

struct section {
	uint32_t tag;
	uint32_t flags;
	uint32_t at;
	uint32_t bytes;
};

struct extension {
	uint32_t magic;
	uint32_t count;
	struct section sections[MOST_SECTIONS];
};

/* An old cache that was checked: each text of an entry lies in its texts, and ends there. */
struct parts {
	const unsigned char *file;
	const unsigned char *start;	/* of the new form in it */
	struct head head;
	size_t texts;			/* where they begin */
	size_t texts_end;
	struct extension extension;	/* without sections: there is none */
};

struct output {
	unsigned char *start;
	size_t length;
	size_t room;
};

static bool add(struct output *out, const void *what, size_t bytes)
{
	if (bytes > out->room - out->length)
		return false;
	memcpy(out->start + out->length, what, bytes);
	out->length += bytes;
	return true;
}

static bool align(struct output *out)
{
	static const char zeros[4];

	return add(out, zeros, -out->length & 3);
}

static struct entry entry_at(const unsigned char *start, size_t number)
{
	struct entry entry;

	memcpy(&entry, start + sizeof(struct head) + number * sizeof(entry), sizeof(entry));
	return entry;
}

/* `length` is the file's. */
static bool read_extension(struct parts *old, size_t length)
{
	size_t at = old->head.extension, table = 2 * sizeof(uint32_t), head = (size_t)(old->start - old->file);
	struct extension *extension = &old->extension;

	extension->count = 0;
	if (at == 0)
		return true;
	if (at < head + old->texts_end || at > length || length - at < table)
		return false;
	memcpy(extension, old->file + at, table);
	if (extension->magic != EXTENSION_MAGIC || extension->count > MOST_SECTIONS ||
	    (length - at - table) / sizeof(struct section) < extension->count)
		return false;
	memcpy(extension->sections, old->file + at + table, extension->count * sizeof(struct section));
	for (size_t i = 0; i < extension->count; i++) {
		const struct section *section = &extension->sections[i];

		if (section->at < at || section->at > length || section->bytes > length - section->at)
			return false;
	}
	return true;
}

static bool in_texts(const struct parts *old, uint32_t at)
{
	return at >= old->texts && at < old->texts_end;
}

/* `start` and `length` are those of the new form in the file. */
static bool read_parts(const unsigned char *file, const unsigned char *start, size_t length, struct parts *old)
{
	if (length < sizeof(old->head) || memcmp(start, MAGIC, sizeof(MAGIC) - 1) != 0)
		return false;
	old->file = file;
	old->start = start;
	memcpy(&old->head, start, sizeof(old->head));
	if ((old->head.flags & BYTE_ORDER_AT_FLAGS) % LITTLE_ENDIAN_FLAG != 0)	/* of another processor, or broken */
		return false;
	if (old->head.count > (length - sizeof(old->head)) / sizeof(struct entry))
		return false;
	old->texts = sizeof(old->head) + old->head.count * sizeof(struct entry);
	if (old->head.text_bytes > length - old->texts)
		return false;
	old->texts_end = old->texts + old->head.text_bytes;
	if (old->head.count > 0 && (old->head.text_bytes == 0 || start[old->texts_end - 1] != '\0'))
		return false;
	for (size_t i = 0; i < old->head.count; i++) {
		struct entry entry = entry_at(start, i);

		if (!in_texts(old, entry.name) || !in_texts(old, entry.path))
			return false;
	}
	return read_extension(old, length + (size_t)(start - file));
}

/* Skip the form of libc5 where it stands first. */
static bool find_new_form(const unsigned char **start, size_t *length)
{
	uint32_t count;
	size_t at;

	if (*length < OLD_HEAD || memcmp(*start, OLD_MAGIC, sizeof(OLD_MAGIC) - 1) != 0)
		return true;
	memcpy(&count, *start + OLD_HEAD - sizeof(count), sizeof(count));
	at = (OLD_HEAD + (size_t)count * OLD_ENTRY + 7) & ~(size_t)7;
	if (at > *length)
		return false;
	*start += at;
	*length -= at;
	return true;
}

static bool is_digit(unsigned char character)
{
	return character >= '0' && character <= '9';
}

static uint64_t number_at(const unsigned char **text)
{
	uint64_t number = 0;

	for (; is_digit(**text); (*text)++)
		if (number < UINT64_MAX / 16)
			number = number * 10 + (uint64_t)(**text - '0');
	return number;
}

/* The loader's order of names: digits count as numbers, and come after all else. */
static int compare_names(const char *one, const char *other)
{
	const unsigned char *a = (const unsigned char *)one, *b = (const unsigned char *)other;

	while (*a != '\0') {
		if (is_digit(*a) != is_digit(*b))
			return is_digit(*a) ? 1 : -1;
		if (is_digit(*a)) {
			uint64_t first = number_at(&a), second = number_at(&b);

			if (first != second)
				return first > second ? 1 : -1;
		} else if (*a != *b) {
			return *a > *b ? 1 : -1;
		} else {
			a++;
			b++;
		}
	}
	return *b == '\0' ? 0 : -1;
}

static bool is_of(const struct library *library, const char *name, const char *path)
{
	return text_equal(library->name, name) && text_equal(library->path, path);
}

/* Which of the old entries stay: all but those that are ours, from an image of a container that had them. */
static size_t copy_entries(const struct parts *old, const struct library *some, size_t count, struct entry *entries)
{
	const char *texts = (const char *)old->start;
	size_t kept = 0;

	for (size_t i = 0; i < old->head.count; i++) {
		struct entry entry = entry_at(old->start, i);
		bool ours = false;

		for (size_t j = 0; j < count; j++)
			ours = ours || is_of(&some[j], texts + entry.name, texts + entry.path);
		if (!ours)
			entries[kept++] = entry;
	}
	return kept;
}

/* Put a library before all entries that do not come before its name; `text_of` names are in the old texts, or ours. */
static void insert(struct entry *entries, size_t count, const struct entry *entry, const char *name,
		   const char *old_texts, const char *our_texts, uint32_t ours_at)
{
	size_t at = 0;

	while (at < count) {
		uint32_t other = entries[at].name;

		if (compare_names(other >= ours_at ? our_texts + (other - ours_at) : old_texts + other, name) <= 0)
			break;
		at++;
	}
	memmove(entries + at + 1, entries + at, (count - at) * sizeof(*entries));
	entries[at] = *entry;
}

static bool add_extension(struct output *out, const struct parts *old, uint32_t moved)
{
	struct extension extension = old->extension;
	size_t at = out->length;

	if (!add(out, &extension, 2 * sizeof(uint32_t) + extension.count * sizeof(struct section)))
		return false;
	for (size_t i = 0; i < extension.count; i++) {
		struct section *section = &extension.sections[i];
		const unsigned char *data = old->file + section->at;

		if (!align(out))
			return false;
		section->at = (uint32_t)out->length;
		if (!add(out, data, section->bytes))
			return false;
		for (uint32_t place = 0; section->tag == HWCAPS_TAG && section->bytes - place >= 4; place += 4) {
			uint32_t name;

			memcpy(&name, data + place, sizeof(name));
			name += moved;
			memcpy(out->start + section->at + place, &name, sizeof(name));
		}
	}
	memcpy(out->start + at + 2 * sizeof(uint32_t), extension.sections,
	       extension.count * sizeof(struct section));
	return true;
}

static bool add_texts(struct output *out, const struct library *some, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!add(out, some[i].name, text_length(some[i].name) + 1) ||
		    !add(out, some[i].path, text_length(some[i].path) + 1))
			return false;
	return true;
}

/* The entries, in the order of the loader, with places as if the texts stayed where they are in the old cache. */
static void make_entries(const struct parts *old, const struct library *some, size_t count, struct entry *entries,
			 size_t kept, const char *our_texts)
{
	uint32_t ours_at = (uint32_t)old->texts_end, at = ours_at;

	for (size_t i = 0; i < count; i++) {
		struct entry entry = { .flags = OUR_FLAGS, .name = at };

		entry.path = at + (uint32_t)text_length(some[i].name) + 1;
		at = entry.path + (uint32_t)text_length(some[i].path) + 1;
		insert(entries, kept + i, &entry, some[i].name, (const char *)old->start, our_texts, ours_at);
	}
}

static size_t write_cache(const struct parts *old, const struct library *some, size_t count, struct output *out)
{
	size_t all = old->head.count + count, kept, texts, ours;
	struct entry *entries = (struct entry *)(out->start + sizeof(struct head));
	struct head head = old->head;
	uint32_t moved;

	if (all > (out->room - sizeof(head)) / sizeof(*entries))
		return 0;
	kept = copy_entries(old, some, count, entries);
	all = kept + count;
	texts = out->length = sizeof(head) + all * sizeof(*entries);
	if (!add(out, old->start + old->texts, old->texts_end - old->texts))
		return 0;
	ours = out->length;
	if (!add_texts(out, some, count))
		return 0;
	make_entries(old, some, count, entries, kept, (const char *)out->start + ours);
	moved = (uint32_t)texts - (uint32_t)old->texts;
	for (size_t i = 0; i < all; i++) {
		entries[i].name += moved;
		entries[i].path += moved;
	}
	head.count = (uint32_t)all;
	head.text_bytes = (uint32_t)(out->length - texts);
	head.extension = 0;
	if (old->extension.count > 0) {
		if (!align(out))
			return 0;
		head.extension = (uint32_t)out->length;
		if (!add_extension(out, old, moved))
			return 0;
	}
	memcpy(out->start, &head, sizeof(head));
	return out->length;
}

size_t cache_merge(const unsigned char *old, size_t length, const struct library *some, size_t count,
		   unsigned char *out, size_t room)
{
	static const struct head empty = { .magic = MAGIC, .flags = LITTLE_ENDIAN_FLAG };
	struct output output = { out, 0, room };
	const unsigned char *file = old;
	struct parts parts = { 0 };

	if (count == 0 || room < sizeof(struct head) || room > INT32_MAX || length > INT32_MAX)
		return 0;
	if (length == 0) {
		parts.start = (const unsigned char *)&empty;
		parts.head = empty;
		parts.texts = parts.texts_end = sizeof(empty);
	} else if (!find_new_form(&old, &length) || !read_parts(file, old, length, &parts)) {
		return 0;
	}
	return write_cache(&parts, some, count, &output);
}
