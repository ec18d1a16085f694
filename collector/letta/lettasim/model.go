package lettasim

import (
	"embed"
	"io/fs"
)

// ModelName selects [Model] in a setting that takes the folder of a model.
const ModelName = "simulated"

//go:embed model
var embedded embed.FS

// Model returns a model's folder with the tokenizer and the chat template of scripted agents. The
// test of this package writes tokenizer.json.gz.
func Model() fs.FS {
	files, err := fs.Sub(embedded, "model")
	if err != nil {
		return embedded // impossible: the name is valid
	}
	return files
}
