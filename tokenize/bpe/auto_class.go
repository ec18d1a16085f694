package bpe

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A reading is a set of transformers releases that load a folder in the same way. It is named
// after the release that was tested.
type reading uint8

const (
	reading457  reading = iota // 4.57.6
	reading53                  // 5.3.0
	reading520                 // 5.20.2
	reading521                 // 5.21.1
	reading522                 // 5.22.2
	reading523                 // 5.23.0, 5.24.0
	allReadings                // number of readings
)

func (r reading) String() string {
	return [...]string{"4.57", "5.3", "5.20", "5.21", "5.22", "5.23"}[r]
}

// An autoClass is a tokenizer class in the transformers library. In release 5 and later, the
// class creates its own normalizer, pre-tokenizer, decoder and model. It reads only the
// vocabulary and the merges from tokenizer.json. In release 4, the class uses all of
// tokenizer.json.
type autoClass struct {
	normalizer, preTokenizer, decoder string // JSON
	model                             modelSpec
	// The defaults of the named tokens in releases 4 and 5: name, content, name, content …
	defaults4, defaults5 []string
}

const (
	byteLevelDecoder = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	byteLevelSplit   = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`
	byteLevelRegex   = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	spacesDecoder    = `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
)

func splitThenBytes(expr string) string {
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(strictjson.AppendText(nil, expr)) +
		`},"behavior":"Isolated","invert":false},` + byteLevelSplit + `]}`
}

// autoClasses contains the classes that rollout supports. LlamaTokenizer and GemmaTokenizer also
// depend on fields in tokenizer_config.json; see autoFiles.parts.
var autoClasses = map[string]*autoClass{
	"generic": {},
	"Qwen2Tokenizer": {
		`{"type":"NFC"}`, splitThenBytes(patternCL100K), byteLevelDecoder,
		modelSpec{},
		[]string{"unk_token", "<|endoftext|>", "eos_token", "<|endoftext|>", "pad_token", "<|endoftext|>"},
		[]string{"unk_token", "<|endoftext|>", "eos_token", "<|endoftext|>", "pad_token", "<|endoftext|>"},
	},
	"Qwen3_5Tokenizer": {
		`{"type":"NFC"}`, splitThenBytes(patternQwen35), byteLevelDecoder,
		modelSpec{},
		nil,
		[]string{"unk_token", "<|endoftext|>", "eos_token", "<|endoftext|>", "pad_token", "<|endoftext|>"},
	},
	"GPT2Tokenizer": {
		`null`, byteLevelRegex, byteLevelDecoder,
		modelSpec{},
		[]string{"unk_token", "<|endoftext|>", "bos_token", "<|endoftext|>", "eos_token", "<|endoftext|>"},
		[]string{"unk_token", "<|endoftext|>", "bos_token", "<|endoftext|>", "eos_token", "<|endoftext|>"},
	},
	"GPTNeoXTokenizer": {
		`{"type":"NFC"}`, byteLevelRegex, byteLevelDecoder,
		modelSpec{},
		[]string{"unk_token", "<|endoftext|>", "bos_token", "<|endoftext|>", "eos_token", "<|endoftext|>"},
		[]string{"unk_token", "<|endoftext|>", "bos_token", "<|endoftext|>", "eos_token", "<|endoftext|>", "pad_token", "<|padding|>"},
	},
	"CohereTokenizer": {
		`{"type":"NFC"}`, `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` + byteLevelRegex + `]}`, byteLevelDecoder,
		modelSpec{},
		[]string{"unk_token", "<UNK>", "bos_token", "<BOS_TOKEN>", "eos_token", "<|END_OF_TURN_TOKEN|>"},
		[]string{"unk_token", "<UNK>", "bos_token", "<BOS_TOKEN>", "eos_token", "<|END_OF_TURN_TOKEN|>", "pad_token", "<PAD>", "cls_token", "<CLS>", "sep_token", "<SEP>", "mask_token", "<MASK_TOKEN>"},
	},
	"LlamaTokenizer": {
		`null`, "", "",
		modelSpec{FuseUnk: true, ByteFallback: true},
		[]string{"unk_token", "<unk>", "bos_token", "<s>", "eos_token", "</s>"},
		[]string{"unk_token", "<unk>", "bos_token", "<s>", "eos_token", "</s>"},
	},
	"GemmaTokenizer": {
		`{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
		`{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`,
		`{"type":"Sequence","decoders":[` + spacesDecoder + `]}`,
		modelSpec{FuseUnk: true, ByteFallback: true},
		[]string{"unk_token", "<unk>", "bos_token", "<bos>", "eos_token", "<eos>", "pad_token", "<pad>"},
		[]string{"unk_token", "<unk>", "bos_token", "<bos>", "eos_token", "<eos>", "pad_token", "<pad>", "mask_token", "<mask>"},
	},
}

// lookUp returns the value in autoTable for a name and a reading, or "" if the table has no such
// line. It searches only the lines that begin with the word in what.
func (r reading) lookUp(what, name string) string {
	for line := range strings.Lines(autoTable) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != what || !slices.Contains(f[3:], name) {
			continue
		}
		if mask, err := strconv.Atoi(f[2]); err == nil && mask>>r&1 != 0 {
			return f[1]
		}
	}
	return ""
}

// typeClass returns the name of the class for a model type. It can also return "generic" or
// "other", or "" if the model type is unknown.
func (r reading) typeClass(modelType string) string { return r.lookUp("type", modelType) }

// wrongClass reports whether the releases in r ignore tokenizer_class for a model type and use the
// class of the model type instead.
func (r reading) wrongClass(modelType string) bool { return r.lookUp("wrong", modelType) != "" }

// className converts the name of a class to a key of autoClasses. It returns "other" if rollout
// does not support the class, and "" if the name is unknown.
func (r reading) className(name string) string {
	base := strings.TrimSuffix(name, "Fast")
	switch base {
	case "generic", "other":
		return base
	case "PreTrainedTokenizer", "BloomTokenizer":
		return "generic"
	case "TokenizersBackend", "PythonBackend":
		if r == reading457 {
			return ""
		}
		return "generic"
	}
	switch r.lookUp("class", base) {
	case "known":
		return base
	case "other":
		return "other"
	}
	return ""
}

// class returns the class that the releases in r use for the folder, as a key of autoClasses.
func (a *autoFiles) class(r reading) (string, error) {
	name, err := a.classNames(r)
	if err != nil {
		return "", err
	}
	class := r.className(name)
	switch {
	case class == "other":
		return "", badField(FileConfig+": tokenizer_class", "is the class %.40q, which rollout does not support; %s", name, classHint)
	case class == "" && r == reading457:
		return "", fails(r, FileConfig+": tokenizer_class", "is %.40q, a class that this release does not have", name)
	case class == "":
		class = "generic"
	}
	return class, nil
}

// classNames returns the name of the class that the releases in r use. It returns "generic" if
// they use everything in tokenizer.json.
func (a *autoFiles) classNames(r reading) (string, error) {
	class := a.config.get("tokenizer_class")
	given, err := text(class, FileConfig, "tokenizer_class")
	if err != nil {
		return "", err
	}
	if class.is() && given == "" { // the releases differ in what they load for an empty name
		return "", badField(FileConfig+": tokenizer_class", "is empty; %s", classHint)
	}
	var byModel, modelType, modelName string
	for _, f := range []struct {
		key string
		to  *string
	}{{"tokenizer_class", &byModel}, {"model_type", &modelType}, {"model_name", &modelName}} {
		if *f.to, err = text(a.model.get(f.key), fileModelConfig, f.key); err != nil {
			return "", err
		}
	}
	if r == reading457 {
		return a.className457(given, byModel, modelType)
	}
	mapped := r.typeClass(modelType)
	base := func(s string) string { return strings.TrimSuffix(s, "Fast") }
	if r == reading53 {
		if given != "" && mapped != "" && mapped != base(given) {
			return "generic", nil
		}
	} else {
		hub := cmp.Or(given, byModel)
		wrong := r.wrongClass(modelType) || r.wrongClass(modelName)
		if r >= reading522 && base(hub) == "LlamaTokenizer" && a.byteLevel && (r == reading522 || !wrong) {
			return "generic", nil
		}
		if hub != "" && mapped != "" && mapped != base(hub) {
			name := hub
			if wrong {
				name = mapped
			}
			if mapped != "generic" {
				if c := r.className(name); name == "other" || c != "" && c != "generic" {
					return name, nil
				}
			}
			return "generic", nil
		}
	}
	switch {
	case given != "":
		return given, nil
	case byModel != "":
		return byModel, nil
	case mapped != "":
		return mapped, nil
	case modelType == "llama" && r == reading53, modelType == "gpt-sw3", modelType == "vision-encoder-decoder":
		return "other", nil // AutoTokenizer uses the class of another model type that has the same configuration class
	}
	return "generic", nil
}

func (a *autoFiles) className457(given, byModel, modelType string) (string, error) {
	switch {
	case given != "":
		return given, nil
	case a.model == nil:
		return "", fails(reading457, FileConfig+": tokenizer_class", "is missing, and there is no config.json")
	case byModel != "":
		return byModel, nil
	}
	if c := reading457.typeClass(modelType); c != "" {
		return c, nil
	}
	return "", fails(reading457, fileModelConfig+": model_type", "is %.40q, which this release does not support", modelType)
}

// text returns the value of a string field, or "" if the field is null or missing.
func text(v *jsonValue, file, field string) (string, error) {
	switch {
	case !v.is():
		return "", nil
	case v.kind != '"':
		return "", badField(file+": "+field, "is %s, want a string", v.what())
	}
	return v.text, nil
}
