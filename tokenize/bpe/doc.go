// Package bpe encodes text to token ids and decodes ids to text with a model's own BPE tokenizer.
// It reads a tokenizer.json, with a vocabulary of bytes or of characters, or a tiktoken rank file.
//
// # From text to ids
//
//	text ─► cut out added tokens that are not normalized
//	     ─► normalize the rest, if the model requires it: NFC, Prepend, Replace
//	     ─► cut out added tokens that are normalized
//	     ─► split the rest into pre-tokens by the model's pattern
//	     ─► merge the bytes, or characters, of a pre-token, pair by pair, to tokens
//	     ─► on request, add the ids of the post-processor
//
// Encode a rendered chat template with the zero EncodeOptions: all added tokens are matched, and
// the post-processor adds nothing. Use AddedNone for a tool's result and other untrusted text.
//
// Decoding joins the bytes of the tokens and replaces invalid UTF-8. Keep the sampled ids, because
// encoding a decoded text can return different ids.
//
// # Supported tokenizers
//
//	family     models                   pattern; normalizer
//	cl100k     Qwen2, Qwen2.5, Qwen3    one digit at a time; NFC
//	qwen3.5    Qwen3.5, Qwen3.6         as cl100k, with marks among letters; NFC
//	llama3     Llama 3.x                up to three digits
//	glm        GLM-4.5, 4.7, 5          as llama3
//	o200k      gpt-oss, Llama 4,        case, contractions; also Removed + invert
//	           MiniMax-M2
//	tekken     Mistral Nemo             case, no contractions; also tekken.json
//	deepseek   DeepSeek V3, R1, V4      three patterns in sequence
//	gpt2       older models             ByteLevel's own pattern
//	command-r  Command R                Digits, then as gpt2; NFC
//	chars      Gemma 3, Llama 2         characters, no pattern (see below)
//	kimi       Kimi-K2, tiktoken.model  Han separate, input in chunks; experimental
//	other      unknown patterns         experimental
//
// Kimi was never tested with its real vocabulary. Kimi and unknown patterns are rejected unless
// Options.Experimental is set. All other features are rejected when a tokenizer is loaded, and the
// error names the feature: models other than BPE, dropout, prefixes and suffixes, other
// normalizers, pre-tokenizers, decoders and post-processors, truncation, padding.
//
// The exact text of the patterns identifies the family. Patterns are compiled to tables
// (internal/pattern) of about 45 KiB each. The tokenizers of a family share the tables. An unknown
// pattern is rejected unless each of its constructs certainly has the same meaning in the reference
// engine and splitting takes linear time.
//
// # The other files of a folder
//
// A server loads a model's folder with AutoTokenizer of transformers. AutoTokenizer merges
// tokenizer_config.json, config.json, special_tokens_map.json and added_tokens.json into
// tokenizer.json. Load does the same:
//
//   - added_tokens_decoder, additional_special_tokens, extra_special_tokens and every field
//     that ends with _token can add tokens and change the flags of other tokens. The last two
//     files are read only if there is no added_tokens_decoder.
//   - tokenizer_class, and model_type of config.json, choose a class. Since transformers 5,
//     some classes replace the normalizer, the pre-tokenizer, the decoder and the options of
//     the model: Qwen2Tokenizer, Qwen3_5Tokenizer, LlamaTokenizer (with legacy and
//     add_prefix_space), GemmaTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, CohereTokenizer.
//
// Load rejects everything else with an error that names the file and the field: other classes, code
// in the folder (auto_map), split_special_tokens, add_prefix_space and from_slow if they have an
// effect, fix_mistral_regex for a large vocabulary, other file names, and values of wrong types.
// Load ignores fields that do not affect ids, such as model_max_length, add_bos_token and
// clean_up_tokenization_spaces: a chat is encoded without truncation and post-processor.
//
// Releases of transformers differ. Options.Releases lists the releases that the server can have. If
// it is empty, all releases must load the folder as the same tokenizer, except for two kinds of
// releases: those that cannot load the folder, and those that load a vocabulary of bytes as a
// vocabulary of characters. The ids of the second kind differ so much that every token count shows
// it. The release 5.0 represents both 5.3.0 and 5.20.2, which must load the same tokenizer.
//
// Parse reads only tokenizer.json. Load assumes that the server does not use mistral-common. If
// there is a tokenizer.json, Load ignores tekken.json and tiktoken.model.
//
// # Vocabularies of characters
//
// Gemma, Llama 2 and models derived from them (Mistral 7B, TinyLlama, Yi, Phi-3) use SentencePiece
// vocabularies. A space is spelled ▁. A character outside the vocabulary becomes the <0xXX> tokens
// of its bytes (byte_fallback), or the unknown token. Supported are the normalizers Prepend and
// Replace by a string; the pre-tokenizers Metaspace, Digits and Split by a string, or none; and the
// decoders Replace, ByteFallback, Fuse, Strip at the start and Metaspace.
//
// A text is then a single word. It is still merged in parts, which are cut between two characters
// that no merge can cross: before most spaces, and at most positions in Chinese.
//
// Bytes returns the bytes that a token decodes to inside a text: " the" for ▁the, one byte for
// <0x0A>. Piece and ID use the spelling, ▁the. If the decoder strips the leading space, a decoded
// text can lack the space of its first token. Consecutive byte tokens are decoded together. If
// their bytes are not valid UTF-8, each token, not each maximal subpart, becomes U+FFFD.
// AppendBytes keeps the bytes.
//
// # Exactness
//
// The ids equal the ids of the tokenizers library, version 0.23.2, for every text. The library's
// regular expressions use Unicode 16.0 and its composition uses Unicode 9.0. So this package has
// the data of both versions (internal/ucd) and does not use the tables of the Go library. The tests
// compare the ids with:
//
//   - stored vectors of that library, llama.cpp, transformers.js and swift-transformers
//   - every code point of the planes in use, in four contexts
//   - in each full run, against the library itself: 2,000 new random texts per tokenizer,
//     composed of known hard cases, and 3,000 random tokenizers with all features
//     (make differential: 20,000 and 54,000)
//   - folders against AutoTokenizer, with random files: 300 folders of the newest release in
//     each full run; in make differential 20,000, and 2,000 of each other release
//   - tekken.json against mistral-common 1.13.1, whose decoder does not form a character
//     across a skipped special token
//   - edited files, for features that no stored file uses (flags of added tokens, the pattern
//     of GPT-2)
//
// A later version of the library can have newer tables. Two differences are deliberate: it is an
// error to encode a text with a pre-token over MaxPretoken, and to decode an id without a token.
//
// # Cost
//
// Time and memory are linear in the length of the text, for every text. If added tokens resemble
// each other, the time also grows with the length of the longest added token, at most 1,024 bytes.
// The memory of a call comes from a pool and is 1.7 MB per concurrent call. A warm encoder does not
// allocate. Words of up to 16 bytes are looked up whole, and two caches of fixed size keep the
// tokens of words. Longer words are cut at positions that no merge crosses, and their tokens are
// found from left to right (merge.go). `make peerspeed` compares the speed with the reference
// engine.
//
// A loaded tokenizer takes about 150 to 200 bytes of memory per id: 6 MB for Llama 2, 21 MB for
// Qwen3, 37 MB for gpt-oss, 49 MB for Gemma 3. Loading allocates about 500 bytes per id in total,
// and takes 0.15 s for 150,000 merges on one slow core.
package bpe
