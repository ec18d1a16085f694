// Package bpe encodes text to token ids and decodes ids to text with a model's own BPE tokenizer.
// It reads a tokenizer.json or a tiktoken rank file. The vocabulary of a tokenizer.json can
// consist of bytes or of characters.
//
// # From text to ids
//
//	text ─► cut out added tokens that are not normalized
//	     ─► normalize the rest, if the model requires it: NFC, Prepend, Replace
//	     ─► cut out added tokens that are normalized
//	     ─► split the rest into pre-tokens by the model's pattern
//	     ─► merge the bytes, or characters, of a pre-token into tokens, pair by pair
//	     ─► on request, add the ids of the post-processor
//
// To encode a rendered chat template, use the zero value of EncodeOptions. All added tokens are
// then matched, and the post-processor does not add ids. For tool results and other untrusted
// text, use AddedNone.
//
// Decoding joins the bytes of the tokens and replaces invalid UTF-8. Always keep the sampled ids,
// because encoding the decoded text can return other ids.
//
// # Supported tokenizers
//
//	family     models                   pattern; normalizer
//	cl100k     Qwen2, Qwen2.5, Qwen3    one digit at a time; NFC
//	qwen3.5    Qwen3.5, Qwen3.6         like cl100k, with marks among letters; NFC
//	llama3     Llama 3.x                up to three digits
//	glm        GLM-4.5, 4.7, 5          like llama3
//	o200k      gpt-oss, Llama 4,        case, contractions; also Removed + invert
//	           MiniMax-M2
//	tekken     Mistral Nemo             case, no contractions; also tekken.json
//	deepseek   DeepSeek V3, R1, V4      three patterns in sequence
//	gpt2       older models             ByteLevel's own pattern
//	command-r  Command R                Digits, then like gpt2; NFC
//	chars      Gemma 3, Llama 2         characters, no pattern (see below)
//	kimi       Kimi-K2, tiktoken.model  Han separate, input in chunks; experimental
//	other      unknown patterns         experimental
//
// Kimi has never been tested with its real vocabulary. Kimi and unknown patterns are rejected
// unless Options.Experimental is set. If a tokenizer has an unsupported feature, loading it
// fails, and the error names the feature. Unsupported are models other than BPE, dropout,
// prefixes and suffixes, truncation, padding, and all other normalizers, pre-tokenizers, decoders
// and post-processors.
//
// The exact text of a tokenizer's patterns identifies its family. Each pattern is compiled to
// tables (internal/pattern) of about 45 KiB. All tokenizers of a family share these tables. An
// unknown pattern is rejected unless it splits text in linear time and every construct in it is
// known to have the same meaning in the reference engine.
//
// # The other files of a folder
//
// A server loads a model's folder with AutoTokenizer from the transformers library. AutoTokenizer
// merges tokenizer_config.json, config.json, special_tokens_map.json and added_tokens.json into
// tokenizer.json. Load merges the same fields:
//
//   - added_tokens_decoder, additional_special_tokens, extra_special_tokens and every field
//     whose name ends with _token can add tokens and change the flags of other tokens.
//     The files special_tokens_map.json and added_tokens.json are read only if there is no
//     added_tokens_decoder.
//   - tokenizer_class, and model_type in config.json, select a class. Since transformers 5,
//     some classes replace the normalizer, the pre-tokenizer, the decoder and the options of
//     the model: Qwen2Tokenizer, Qwen3_5Tokenizer, LlamaTokenizer (with legacy and
//     add_prefix_space), GemmaTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, CohereTokenizer.
//
// If another field can affect ids, Load returns an error that names the file and the field.
// Examples are other classes, code in the folder (auto_map), split_special_tokens,
// fix_mistral_regex for a large vocabulary, other file names, and values of the wrong type. The
// fields add_prefix_space and from_slow are errors only if they have an effect. Load ignores
// fields that do not affect ids, such as model_max_length, add_bos_token and
// clean_up_tokenization_spaces. These fields have no effect, because a chat is encoded without
// truncation and without a post-processor.
//
// The releases of transformers load folders differently. Options.Releases lists the releases that
// the server might be using. If the list is empty, all releases must load the same tokenizer from
// the folder. This does not apply to releases that cannot load the folder. It also does not apply
// to releases that load a vocabulary of bytes as a vocabulary of characters, because every token
// count would show the difference. Release 5.0 stands for both 5.3.0 and 5.20.2, which must load
// the same tokenizer.
//
// Parse reads only tokenizer.json. Load assumes that the server does not use mistral-common. If
// there is a tokenizer.json, Load ignores tekken.json and tiktoken.model.
//
// # Vocabularies of characters
//
// Gemma, Llama 2 and related models (Mistral 7B, TinyLlama, Yi, Phi-3) use SentencePiece
// vocabularies. The character ▁ stands for a space. A character outside the vocabulary becomes
// the <0xXX> tokens of its bytes (byte_fallback), or the unknown token. For such vocabularies,
// this package supports the normalizers Prepend and Replace (of a string), and the decoders
// Replace, ByteFallback, Fuse, Strip (at the start) and Metaspace. It supports the pre-tokenizers
// Metaspace, Digits and Split (at a string). The pre-tokenizer can also be missing.
//
// With such a vocabulary, the whole text is a single word. But the word is merged in parts. It is
// cut at positions that no merge can cross: before most spaces, and at most positions in Chinese
// text.
//
// The method Bytes returns the bytes of a token that is not at the start of the text: " the" for
// the token ▁the, and one byte for the token <0x0A>. The methods Piece and ID use the spelling
// with ▁. If the decoder strips a leading space from the text, the first token decodes without
// that space. Consecutive byte tokens are decoded together. If their bytes are not valid UTF-8,
// AppendText replaces each of these tokens, not each maximal subpart, with one U+FFFD.
// AppendBytes keeps the bytes.
//
// # Exactness
//
// For every text, this package returns the same ids as version 0.23.2 of the tokenizers library.
// The library uses Unicode 16.0 for its regular expressions and Unicode 9.0 for composition.
// Therefore this package includes the data of both versions (internal/ucd), and does not use the
// tables in Go's standard library. The tests compare the ids for these inputs:
//
//   - stored test vectors from that library, llama.cpp, transformers.js and swift-transformers
//   - every code point in the Unicode planes that are in use, in four contexts
//   - random strings composed of known hard cases, and random tokenizers with all features,
//     compared with the library itself: 2,000 new strings per tokenizer and 3,000 tokenizers in
//     each full run, and 20,000 strings and 54,000 tokenizers in `make differential`
//   - folders with random files, compared with AutoTokenizer: 300 folders with the newest release
//     in each full run, and 20,000 with the newest release and 2,000 with each other release in
//     `make differential`
//   - tekken.json, compared with mistral-common 1.13.1, whose decoder does not form a character
//     from bytes on both sides of a skipped special token
//   - edited files, for features that no stored file uses (flags of added tokens, the pattern
//     of GPT-2)
//
// A later version of the library can have newer Unicode tables. This package deliberately differs
// from the library in two ways: encoding fails if a pre-token is longer than MaxPretoken, and
// decoding fails if an id has no token.
//
// # Cost
//
// Time and memory are always linear in the length of the text. If added tokens resemble each other,
// the time also grows with the length of the longest added token, which is at most 1,024 bytes.
// Each concurrent call takes 1.7 MB of memory from a pool. After the pool has been filled,
// encoding does not allocate memory. Words of up to 16 bytes are looked up as a whole, and two
// caches of fixed size contain the tokens of words. Longer words are cut at positions that no
// merge crosses, and their tokens are found from left to right (merge.go). `make peerspeed`
// compares the speed of this package with the speed of the reference engine.
//
// A loaded tokenizer takes about 150 to 200 bytes of memory per id: 6 MB for Llama 2, 21 MB for
// Qwen3, 37 MB for gpt-oss, 49 MB for Gemma 3. Loading allocates about 500 bytes per id in total,
// and takes 0.15 s for 150,000 merges on one slow core.
package bpe
