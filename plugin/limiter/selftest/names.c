/* names.c - each function that the limiter stands in, looked up in each form that programs use: once in the driver, once
 * with the limiter in its way. Nothing that is found is called.
 *
 * A program that finds a function is to find it with the limiter too, and then the limiter's own of the same form. Where
 * the driver's pointer is no symbol of its own, the limiter has to go by the name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "driver.h"
#include "form.h"
#include "hooks.h"
#include "names.h"

#define SYMBOL_ROOM 64
#define EXAMPLES 3

const char *const driver_names[FN_COUNT] = {
#define FUNCTION(name, since, hooked) #name,
#include "functions.def"
#undef FUNCTION
};

static const struct {
	unsigned short since;
	bool hooked;
} listed[FN_COUNT] = {
#define FUNCTION(name, since, hooked) { since, hooked },
#include "functions.def"
#undef FUNCTION
};

static void *addresses[FN_COUNT];

static uint16_t answer_of(const void *given)
{
	if (given == NULL)
		return ANSWER_NONE;
	for (int function = 0; function < FN_COUNT; function++)
		if (addresses[function] == given)
			return (uint16_t)(1 + function);
	return ANSWER_UNKNOWN;
}

struct question {
	const char *way;
	char symbol[SYMBOL_ROOM];
	int version, flags, generation;
};

static void make_question(struct question *out, int function, int number, int newest)
{
	int own = number - QUESTION_OWN, lookup = number - QUESTION_LOOKUP;

	*out = (struct question){ .way = number == QUESTION_DLVSYM ? "dlvsym" : "dlsym" };
	strncpy(out->symbol, driver_names[function], SYMBOL_ROOM - 1);
	if (number < QUESTION_LOOKUP)
		return;
	out->version = own >= 0 || lookup % 2 != 0 ? newest : listed[function].since;
	out->flags = own >= 0 ? 0 : lookup / 2 % 3;
	out->generation = own >= 0 ? 1 + own : 1 + lookup / 6;
	out->way = out->generation == 1 ? "cuGetProcAddress" : "cuGetProcAddress_v2";
	if (own < 0)
		out->symbol[form_stem(out->symbol)] = '\0';
}

static void *ask(void *library, const struct question *question)
{
	__typeof__(&cuGetProcAddress) older = (__typeof__(older))dlsym(library, "cuGetProcAddress");
	__typeof__(&cuGetProcAddress_v2) newer = (__typeof__(newer))dlsym(library, "cuGetProcAddress_v2");
	void *given = NULL;
	int status;

	if (question->generation == 1 && older != NULL &&
	    older(question->symbol, &given, question->version, (uint64_t)question->flags) != CUDA_SUCCESS)
		given = NULL;
	if (question->generation == 2 && newer != NULL &&
	    newer(question->symbol, &given, question->version, (uint64_t)question->flags, &status) != CUDA_SUCCESS)
		given = NULL;
	if (question->generation == 0 && strcmp(question->way, "dlvsym") == 0)
		given = dlvsym(library, question->symbol, "libcuda.so.1");
	else if (question->generation == 0)
		given = dlsym(library, question->symbol);
	return given;
}

void names_look_up(void *library, int newest, struct names *out)
{
	struct question question;
	int row = 0;

	out->newest = newest;
	for (int function = 0; function < FN_COUNT; function++) {
		addresses[function] = dlsym(library, driver_names[function]);
		out->same_as[function] = (uint16_t)(answer_of(addresses[function]) - 1);
	}
	for (int function = 0; function < FN_COUNT; function++) {
		for (int i = 0; i < QUESTIONS && listed[function].hooked; i++) {
			make_question(&question, function, i, newest);
			out->answers[row][i] = answer_of(ask(library, &question));
		}
		row += listed[function].hooked;
	}
	out->done = true;
}

enum finding { FINDING_NONE, FINDING_BY_NAME, FINDING_WITHHELD, FINDING_PASSED, FINDING_WRONG, FINDINGS };

static const char *const finding_names[FINDINGS] = { "", "by_name", "withheld", "passed", "wrong" };

/* Every form that a driver of this version has. */
static int newest_cuda;

static bool exists(int function)
{
	return listed[function].since <= newest_cuda;
}

/* Does the limiter stand in for a function of this symbol that lies where the driver's answer does? */
static bool is_hooked(const struct names *native, const struct question *question, uint16_t answer)
{
	int function;

	if (answer == ANSWER_UNKNOWN) {
		newest_cuda = native->newest;
		function = form_choose(question->symbol, question->version, question->flags == 2, exists);
		return function >= 0 && listed[function].hooked;
	}
	for (function = 0; function < FN_COUNT; function++)
		if (listed[function].hooked && native->same_as[function] == answer - 1 &&
		    form_same_stem(driver_names[function], question->symbol))
			return true;
	return false;
}

static enum finding compare(const struct names *native, const struct question *question, uint16_t by_driver,
			    uint16_t by_limiter)
{
	if (by_driver == ANSWER_NONE)
		return FINDING_NONE;
	if (by_limiter == ANSWER_NONE)
		return FINDING_WITHHELD;
	if (by_limiter == ANSWER_UNKNOWN && is_hooked(native, question, by_driver))
		return FINDING_PASSED;
	if (by_driver == ANSWER_UNKNOWN)
		return FINDING_BY_NAME;
	if (by_limiter != ANSWER_UNKNOWN && native->same_as[by_limiter - 1] != by_driver - 1)
		return FINDING_WRONG;
	return FINDING_NONE;
}

static void write_question(FILE *out, const struct question *question)
{
	fprintf(out, "\"%s by %s", question->symbol, question->way);
	if (question->generation != 0)
		fprintf(out, " for CUDA %d.%d%s", question->version / 1000, question->version % 1000 / 10,
			question->flags == 2 ? ", per thread" : "");
	fputc('"', out);
}

/* The functions of one finding, forms of one counted once, each with the first question that has it: how many, and a few
 * of them. */
static void write_finding(FILE *out, const struct names *native, const struct names *held, enum finding finding)
{
	struct question question;
	int count = 0, row = 0, last = -1;

	fprintf(out, ", \"%s\": {\"examples\": [", finding_names[finding]);
	for (int function = 0; function < FN_COUNT; row += listed[function++].hooked)
		for (int i = 0; i < QUESTIONS && listed[function].hooked; i++) {
			make_question(&question, function, i, native->newest);
			if (compare(native, &question, native->answers[row][i], held->answers[row][i]) != finding)
				continue;
			if (last >= 0 && form_same_stem(driver_names[function], driver_names[last]))
				break;
			last = function;
			if (count < EXAMPLES) {
				fputs(count > 0 ? ", " : "", out);
				write_question(out, &question);
			}
			count++;
			break;
		}
	fprintf(out, "], \"count\": %d}", count);
}

void names_write(FILE *out, const struct names *native, const struct names *held)
{
	bool is_seen = native->done && held->done && native->newest == held->newest;

	fprintf(out, "{\"asked\": %d", is_seen ? HOOKED_COUNT * QUESTIONS : 0);
	for (int finding = FINDING_BY_NAME; finding < FINDINGS && is_seen; finding++)
		write_finding(out, native, held, (enum finding)finding);
	fputc('}', out);
}
