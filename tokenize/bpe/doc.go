// Package bpe encodes text to token ids and decodes ids to text with a model's own BPE tokenizer.
// It reads a tokenizer.json, with a vocabulary of bytes or of characters, or a tiktoken rank file.
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
// To encode a rendered chat template, use the zero EncodeOptions. All added tokens are then
// matched, and the post-processor adds nothing. For a tool's result and other untrusted text, use
// AddedNone.
//
// Decoding joins the bytes of the tokens and replaces invalid UTF-8. Keep the sampled ids, because
// encoding the decoded text can return different ids.
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
// unless Options.Experimental is set. A tokenizer with any other feature is rejected when it is
// loaded, and the error names the feature. Such features are models other than BPE, dropout,
// prefixes and suffixes, other normalizers, pre-tokenizers, decoders and post-processors,
// truncation and padding.
//
// The exact text of a tokenizer's patterns identifies its family. Patterns are compiled to tables
// (internal/pattern) of about 45 KiB each. The tokenizers of a family share the tables. An unknown
// pattern is rejected unless splitting takes linear time and each construct in the pattern
// certainly has the same meaning in the reference engine.
//
// # The other files of a folder
//
// A server loads a model's folder with AutoTokenizer from the transformers library. AutoTokenizer
// merges tokenizer_config.json, config.json, special_tokens_map.json and added_tokens.json into
// tokenizer.json. Load does the same:
//
//   - added_tokens_decoder, additional_special_tokens, extra_special_tokens and every field
//     whose name ends with _token can add tokens and change the flags of other tokens.
//     special_tokens_map.json and added_tokens.json are read only if there is no
//     added_tokens_decoder.
//   - tokenizer_class, and model_type in config.json, select a class. Since transformers 5,
//     some classes replace the normalizer, the pre-tokenizer, the decoder and the options of
//     the model: Qwen2Tokenizer, Qwen3_5Tokenizer, LlamaTokenizer (with legacy and
//     add_prefix_space), GemmaTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, CohereTokenizer.
//
// Load rejects everything else with an error that names the file and the field. It rejects other
// classes, code in the folder (auto_map), split_special_tokens, add_prefix_space and from_slow if
// they have an effect, fix_mistral_regex for a large vocabulary, other file names, and values of
// the wrong type. Load ignores fields that do not affect ids, such as model_max_length,
// add_bos_token and clean_up_tokenization_spaces. Such fields have no effect, because a chat is
// encoded without truncation and without a post-processor.
//
// Releases of transformers differ. Options.Releases lists the releases that the server can be
// using. If it is empty, all releases must load the folder as the same tokenizer. Two kinds of
// releases are exceptions: releases that cannot load the folder, and releases that load a
// vocabulary of bytes as a vocabulary of characters. The ids from the second kind differ so much
// that every token count would show the difference. Release 5.0 stands for both 5.3.0 and 5.20.2,
// which must load the same tokenizer.
//
// Parse reads only tokenizer.json. Load assumes that the server does not use mistral-common. If
// there is a tokenizer.json, Load ignores tekken.json and tiktoken.model.
//
// # Vocabularies of characters
//
// Gemma, Llama 2 and models derived from them (Mistral 7B, TinyLlama, Yi, Phi-3) use SentencePiece
// vocabularies. A space is spelled ▁. A character outside the vocabulary becomes the <0xXX> tokens
// of its bytes (byte_fallback), or the unknown token. This package supports the normalizers Prepend
// and Replace by a string; the pre-tokenizers Metaspace, Digits and Split by a string, or no
// pre-tokenizer; and the decoders Replace, ByteFallback, Fuse, Strip at the start and Metaspace.
//
// With such a vocabulary, the whole text is a single word. It is still merged in parts. The text is
// cut at positions that no merge can cross: before most spaces, and at most positions in Chinese
// text.
//
// Bytes returns the bytes that a token decodes to if it is not at the start of the text: " the" for
// ▁the, one byte for <0x0A>. Piece and ID use the spelling, ▁the. If the decoder strips the leading
// space, decoded text can lack the space from its first token. Consecutive byte tokens are decoded
// together. If their bytes are not valid UTF-8, each token becomes one U+FFFD, not each maximal
// subpart. AppendBytes keeps the bytes.
//
// # Exactness
//
// For every text, this package returns the same ids as version 0.23.2 of the tokenizers library.
// The library uses Unicode 16.0 for its regular expressions and Unicode 9.0 for composition.
// Therefore this package includes the data of both versions (internal/ucd) and does not use the
// tables in Go's standard library. The tests compare the ids on these inputs:
//
//   - stored vectors from that library, llama.cpp, transformers.js and swift-transformers
//   - every code point in the planes in use, in four contexts
//   - random strings and random tokenizers, against the library itself: in each full run 2,000 new
//     strings per tokenizer, composed of known hard cases, and 3,000 tokenizers with all features;
//     `make differential` uses 20,000 strings and 54,000 tokenizers
//   - folders with random files, against AutoTokenizer: in each full run 300 folders with the
//     newest release; `make differential` uses 20,000 with the newest release and 2,000 with
//     each other release
//   - tekken.json, against mistral-common 1.13.1, whose decoder does not form a character
//     across a skipped special token
//   - edited files, for features that no stored file uses (flags of added tokens, the pattern
//     of GPT-2)
//
// A later version of the library can have newer tables. This package deliberately differs in two
// ways: encoding fails if a pre-token is longer than MaxPretoken, and decoding fails if an id has
// no token.
//
// # Cost
//
// Time and memory are always linear in the length of the text. If added tokens resemble each other,
// the time also grows with the length of the longest added token, which is at most 1,024 bytes.
// Each concurrent call takes 1.7 MB of memory from a pool. Once the pool is filled, encoding does
// not allocate memory. Words of up to 16 bytes are looked up as a whole, and two caches of fixed
// size keep the tokens of words. Longer words are cut at positions that no merge crosses, and their
// tokens are found from left to right (merge.go). `make peerspeed` compares the speed with the
// speed of the reference engine.
//
// A loaded tokenizer takes about 150 to 200 bytes of memory per id: 6 MB for Llama 2, 21 MB for
// Qwen3, 37 MB for gpt-oss, 49 MB for Gemma 3. Loading allocates about 500 bytes per id in total,
// and takes 0.15 s for 150,000 merges on one slow core.
package bpe
