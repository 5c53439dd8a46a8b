/*
 * The parser of driver/attach/attach.c under a fuzzer. With libFuzzer (clang -fsanitize=fuzzer) it searches by itself; compiled with -DREPLAY it
 * reads records from standard input, each a length as four bytes in the machine's order and the text, and prints what it parsed, a line each.
 * `make fuzz` does the first, tests/unit/packaging/test_attach_state.py the second.
 */
#define main attach_main
#include "../../driver/attach/attach.c"
#undef main
#include <stdint.h>

static void check(bool holds, const char *what) {
	if (!holds) {
		fprintf(stderr, "broken: %s\n", what);
		abort();
	}
}

/* A word is empty or lies inside the text and has plain characters only. */
static void check_word(struct word word, const char *text, size_t size) {
	if (!word.text)
		return;
	check(word.text > text && word.size > 0 && word.size <= WORD_MAX && word.text + word.size < text + size, "a word lies inside the text");
	for (int i = 0; i < word.size; i++)
		check(strchr("\"\\/ \n", word.text[i]) == NULL && (unsigned char)word.text[i] > ' ', "a word is plain");
}

static bool parse(const uint8_t *data, size_t size, char *text, struct state *state) {
	memcpy(text, data, size);
	text[size] = '\0';
	bool parsed = parse_state(text, size, state);
	check_word(state->id, text, size);
	check_word(state->sandbox, text, size);
	check_word(state->pod, text, size);
	check(state->pid >= 0, "a pid is not negative");
	return parsed;
}

#ifdef REPLAY
int main(void) {
	uint32_t size;
	while (fread(&size, sizeof size, 1, stdin) == 1) {
		uint8_t *data = malloc(size ? size : 1);
		/* Exactly as long as the text, so that the sanitizer sees one byte too far. */
		char *text = malloc((size_t)size + 1);
		struct state state = {0};
		if (fread(data, 1, size, stdin) != size)
			return 1;
		bool parsed = parse(data, size, text, &state);
		printf("%d %ld %.*s %.*s %.*s\n", parsed, state.pid, state.id.text ? state.id.size : 1, state.id.text ? state.id.text : "-",
			state.sandbox.text ? state.sandbox.size : 1, state.sandbox.text ? state.sandbox.text : "-",
			state.pod.text ? state.pod.size : 1, state.pod.text ? state.pod.text : "-");
		free(text);
		free(data);
	}
	return 0;
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size > STATE_MAX)
		return 0;
	char *text = malloc(size + 1);
	struct state state = {0};
	parse(data, size, text, &state);
	free(text);
	return 0;
}
#endif
