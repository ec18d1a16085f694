// Package bpe encodes text to token ids and decodes ids to text with a model's own
// tokenizer: the BPE of a tokenizer.json, whose vocabulary spells bytes or
// characters, or of a tiktoken rank file.
//
// # How a text becomes ids
//
//	text ─► added tokens that are not normalized are cut out
//	     ─► the rest is normalized, where the model says so: NFC, Prepend, Replace
//	     ─► added tokens that are normalized are cut out
//	     ─► the rest is split into pre-tokens by the model's pattern
//	     ─► the bytes, or characters, of a pre-token merge, pair by pair, to tokens
//	     ─► on request, what the post-processor puts around it
//
// A rendered chat template is encoded with the zero EncodeOptions: all added
// tokens are found, nothing is put around. Text that must not make a special
// token, such as the answer of a tool, wants AddedNone.
//
// Decoding joins the bytes of the tokens and replaces what is not valid UTF-8. A
// Stream does so for ids that arrive in pieces. Decoding and encoding again is not
// always the identity: keep the ids that were sampled.
//
// # What is supported
//
//	family     models                   pattern; normalizer
//	cl100k     Qwen2, Qwen2.5, Qwen3    one number at a time; NFC
//	qwen3.5    Qwen3.5, Qwen3.6         as cl100k, with marks among letters; NFC
//	llama3     Llama 3.x                up to three numbers
//	glm        GLM-4.5, 4.7, 5          as llama3
//	o200k      gpt-oss, Llama 4,        case, contractions; also Removed + invert
//	           MiniMax-M2
//	tekken     Mistral Nemo             case, no contractions; also tekken.json
//	deepseek   DeepSeek V3, R1, V4      three patterns, one after the other
//	gpt2       older models             the pattern of ByteLevel itself
//	command-r  Command R                Digits, then as gpt2; NFC
//	chars      Gemma 3, Llama 2         characters and no pattern, see below
//	kimi       Kimi-K2, tiktoken.model  Han apart, input cut; experimental
//	other      patterns of no family    experimental
//
// Kimi has never met its real vocabulary here; it and other patterns are refused
// unless Options.Experimental is set. Everything else is refused when it is loaded,
// with the feature's name: other models than BPE, dropout, prefixes and suffixes,
// other normalizers, pre-tokenizers, decoders and post-processors, truncation,
// padding. Nothing is guessed.
//
// A family is known by the exact text of its patterns. They are compiled to tables
// (internal/pattern), some 45 KiB each, which tokenizers of a family share. Of other
// patterns those can be compiled whose every construct is certain to mean the same
// there; splitting then takes time proportional to the text, or they are refused.
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
// Load refuses everything else, and its error names the file and the field: other classes,
// code in the folder (auto_map), split_special_tokens, add_prefix_space and from_slow if they
// have an effect, fix_mistral_regex for a large vocabulary, other file names, and values of
// wrong types.
// Load ignores fields that do not affect ids, such as model_max_length, add_bos_token and
// clean_up_tokenization_spaces: a chat is encoded without truncation and post-processor.
//
// Releases of transformers differ. Options.Releases lists the releases that the server can
// have. Without it, all releases must load the folder as the same tokenizer, with two
// exceptions. Some releases cannot load the folder. Others read a vocabulary of bytes as a
// vocabulary of characters; their ids differ so much that every count shows it. The release
// 5.0 means both 5.3.0 and 5.20.2, which must agree.
//
// Parse reads only tokenizer.json, and so does Load if there is no other file. Load assumes
// that the server has no mistral-common. It does not merge tekken.json and tiktoken.model.
//
// # Vocabularies of characters
//
// Gemma, Llama 2 and their children (Mistral 7B, TinyLlama, Yi, Phi-3) come from
// SentencePiece: a space is spelled ▁, and what the vocabulary does not know becomes
// the <0xXX> tokens of its bytes (byte_fallback), or the unknown token. Read are the
// normalizers Prepend and Replace by a string; as pre-tokenizer nothing, Metaspace,
// Digits and Splits by a string; as decoder Replace, ByteFallback, Fuse, Strip at the
// start and Metaspace.
//
// Such a text is one word. It is merged in parts nonetheless: between two characters
// that no merge can cross, which is before most spaces and in most places of Chinese.
//
// Bytes returns what a token decodes to inside a text: " the" for ▁the, one byte for
// <0x0A>. Piece and ID speak of the spelling, ▁the. A text may lack the space that
// its first token has, where the decoder strips it. Byte tokens in a row are one
// text together; where that is not valid UTF-8 each of them is U+FFFD, and not each
// maximal subpart. AppendBytes keeps their bytes. A Stream holds byte tokens back
// until another token ends them.
//
// # What exact means
//
// The ids are those of the library tokenizers, version 0.23.2, for every text.
// Its regular expressions know Unicode 16.0 and its composition Unicode 9.0, so
// this package brings tables of both (internal/gen) and does not use Go's. That
// they are equal is shown by the tests: stored vectors of that library, of
// llama.cpp, transformers.js and swift-transformers; every code point of the
// planes in use in four contexts; and in each full run 6,000 fresh random texts per
// tokenizer, made of what is known to go wrong, and 3,000 random tokenizers of all
// features, against the library itself (make differential: 20,000 and 54,000). A
// folder is compared with AutoTokenizer on random files: 300 folders of the newest release
// in each full run, 20,000 in make differential, and 2,000 of each other release. A
// tekken.json is compared with mistral-common 1.13.1, whose decoding lets no
// character go across a special token that is left out. Features that no stored
// file uses (the flags of added tokens, the pattern of GPT-2) are compared on edited
// files.
//
// It is exact against that version: a later one may bring newer tables. Two things
// differ on purpose. A text with a pre-token over MaxPretoken is an error. An id
// that no token has is an error when decoding, where the library drops it.
//
// # Cost
//
// Time and memory grow with the length of the text, whatever the text; where added
// tokens are alike, with that times the length of the longest, which is 1,024 bytes at
// most. Memory for one call comes from a pool, 1.7 MB for each call at once; a warmed encoder does not
// allocate. Words of up to 16 bytes are looked up whole, and the tokens of words that
// are several are kept in two caches of fixed size. Longer ones are cut where no
// merge goes on, and their tokens found from left to right (merge.go). make peerspeed
// prints how fast that is beside the reference engine.
//
// A loaded tokenizer keeps some 150 to 200 bytes for each id: 6 MB for Llama 2, 21 MB
// for Qwen3, 37 MB for gpt-oss, 49 MB for Gemma 3. Loading allocates some 500 bytes
// for each id, all together, and takes 0.15 s for 150,000 merges on one slow core.
package bpe
