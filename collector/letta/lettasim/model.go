package lettasim

import (
	"embed"
	"io/fs"
)

// ModelName selects [Model] in a setting whose value is usually the folder of a model.
const ModelName = "simulated"

//go:embed model
var embedded embed.FS

// Model returns a model folder that contains the tokenizer and the chat template of scripted
// agents. A test in this package writes its tokenizer.json.gz.
func Model() fs.FS {
	files, err := fs.Sub(embedded, "model")
	if err != nil {
		return embedded // impossible, because the name is valid
	}
	return files
}
