package lettasim

import (
	"io/fs"
)

// A Case is one recorded life of an agent.
type Case struct {
	// Name is the file's name without its extension.
	Name string
}

// LoadCases reads every recorded case (.json and .json.gz) in the folder.
func LoadCases(fsys fs.FS, dir string) ([]*Case, error) { return nil, nil }
