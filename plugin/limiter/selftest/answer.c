/* answer.c - what was seen, as JSON: on stdout, and as WORK/result, whole or not at all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "functions.h"
#include "selftest.h"

static const char *const steps[] = { "load", "names", "init", "device", "context", "info", "ways", "module",
				     "launch", "compute", "hold", "done" };
static const char *const way_names[WAYS] = { "plain", "managed", "async", "virtual", "graph",
					     "cuGetProcAddress", "cuGetProcAddress_v2" };
static const char *const ends[] = { "exit", "signal", "late", "not begun" };

/* The loader's text holds paths and little else; what JSON would need an escape for becomes a blank. */
static void text(FILE *out, const char *from)
{
	fputc('"', out);
	for (; *from != '\0'; from++)
		fputc(*from < ' ' || *from > '~' || *from == '"' || *from == '\\' ? ' ' : *from, out);
	fputc('"', out);
}

static void taken(FILE *out, const char *name, const struct taken *one)
{
	fprintf(out, "{\"way\": \"%s\", \"granted\": %d, \"code\": %d, \"missing\": %s}", name, one->granted,
		one->code, one->missing ? "true" : "false");
}

static void kernel(FILE *out, const struct kernel *one)
{
	fprintf(out, "\"kernel\": {\"missing\": %s, \"code\": %d, \"step\": \"%s\", \"work_us\": %llu}, ",
		one->missing ? "true" : "false", one->code, steps[one->at], (unsigned long long)one->work_us);
}

static void outcome(FILE *out, const char *name, const struct outcome *one)
{
	const struct run *run = &one->run;

	fprintf(out, "\"%s\": {\"ended\": \"%s\", \"number\": %d, \"step\": \"%s\", \"code\": %d, ", name,
		ends[one->ended], one->number, steps[run->step], run->code);
	fprintf(out, "\"no_room\": %s, \"init_us\": %llu, \"context_bytes\": %lld, ",
		run->no_room ? "true" : "false", (unsigned long long)run->init_us,
		(long long)run->context_bytes);
	fprintf(out, "\"total_bytes\": %llu, \"nvml_total_bytes\": %lld, \"cuda_version\": %d, \"error\": ",
		(unsigned long long)run->total_bytes, (long long)run->nvml_total_bytes, run->cuda_version);
	text(out, run->error);
	fputs(", ", out);
	fprintf(out, "\"listed\": %s, ", run->listed ? "true" : "false");
	kernel(out, &run->kernel);
	fputs("\"taken\": [", out);
	for (int way = 0; way < WAYS; way++) {
		taken(out, way_names[way], &run->ways[way]);
		fputs(way + 1 < WAYS ? ", " : "]}", out);
	}
}

static void write_all(FILE *out, const struct setup *setup, const struct card_outcome *cards)
{
	fprintf(out, "{\"v\": 1, \"id\": \"%s\", \"each_bytes\": %llu, \"tries\": %d, ", setup->id, EACH, TRIES);
	fprintf(out, "\"payload_bytes\": %llu, \"kernels\": %d, \"kernel_us\": %d, \"core_percent\": %d, ", PAYLOAD,
		KERNELS, KERNEL_US, CORE_PERCENT);
	fprintf(out, "\"listed_cuda\": %d, \"cards\": [", LISTED_CUDA);
	for (unsigned int i = 0; i < setup->count; i++) {
		fprintf(out, "%s{\"card\": \"%s\", ", i > 0 ? ", " : "", setup->cards[i]);
		outcome(out, "native", &cards[i].native);
		fputs(", ", out);
		outcome(out, "held", &cards[i].held);
		fputs(", ", out);
		outcome(out, "second", &cards[i].second);
		fputs(", \"names\": ", out);
		names_write(out, &cards[i].native.run.names, &cards[i].held.run.names);
		fputc('}', out);
	}
	fputs("]}\n", out);
}

bool answer_write(const struct setup *setup, const struct card_outcome *cards)
{
	char new[PATH_ROOM + 16], path[PATH_ROOM + 16];
	FILE *out;
	bool done;

	snprintf(new, sizeof(new), "%s/result.new", setup->work);
	snprintf(path, sizeof(path), "%s/result", setup->work);
	out = fopen(new, "we");
	if (out == NULL)
		return false;
	write_all(out, setup, cards);
	done = fflush(out) == 0 && ferror(out) == 0;
	fclose(out);
	write_all(stdout, setup, cards);
	return done && rename(new, path) == 0;
}
