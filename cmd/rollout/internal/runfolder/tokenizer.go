package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/store"
)

// TokenizerDir contains the files of the run's tokenizer and chat template, in a folder that is named
// after their digest (Model.Files). With them, the text of a run can be read when the model's own folder
// is gone.
const TokenizerDir = "tokenizer"

// ModelFiles are the files of a model; see model.Files.
type ModelFiles interface {
	Digest() (string, error)
	Copy(write func(name string, content func(io.Writer) error) error) error
}

// KeepTokenizer copies the files of the run's tokenizer to the folder of the run, unless they are
// already there. The copy appears at once and is durable. It is made after run.json is written. If the
// process is killed before, the next process makes it.
func (f *Folder) KeepTokenizer(files ModelFiles) error {
	return exit.With(exit.Storage, f.keepTokenizer(files))
}

func (f *Folder) keepTokenizer(files ModelFiles) error {
	digest, err := files.Digest()
	if err != nil {
		return err
	}
	all := filepath.Join(f.Dir, TokenizerDir)
	dir := filepath.Join(all, digest)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	temp := filepath.Join(all, temporary+digest)
	if err := errors.Join(os.RemoveAll(temp), MkdirAll(all, f.Mode), MkdirAll(temp, f.Mode)); err != nil {
		return err
	}
	folders := map[string]bool{temp: true}
	err = files.Copy(func(name string, content func(io.Writer) error) error {
		path := filepath.Join(temp, name)
		if in := filepath.Dir(path); !folders[in] {
			folders[in] = true
			if err := os.MkdirAll(in, config.FolderMode(f.Mode)); err != nil {
				return err
			}
		}
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode)
		if err != nil {
			return err
		}
		return errors.Join(content(to), to.Sync(), to.Close())
	})
	for in := range folders {
		err = errors.Join(err, durable.SyncDir(in))
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return errors.Join(durable.SyncDir(all), durable.SyncDir(f.Dir))
}

// hasCopy reports whether the run has its own copy of its tokenizer.
func (i *Info) hasCopy(dir string, objects store.Store) (bool, error) {
	if i.Model == nil || i.Model.Files == "" {
		return false, nil
	}
	if objects != nil {
		for _, err := range objects.List(TokenizerDir+"/"+i.Model.Files+"/", "") {
			return err == nil, err
		}
		return false, nil
	}
	info, err := os.Stat(filepath.Join(dir, TokenizerDir, i.Model.Files))
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || info.IsDir()), nil
}

// A Model describes the tokenizer and the chat template in run.json.
type Model struct {
	Family    string `json:"family"`
	VocabSize int    `json:"vocab_size"`
	// EngineVocabSize is vocab_size from config.json, or 0 if the file is missing. StopIDs contains
	// the ids from generation_config.json and config.json, and the tokenizer's end-of-text id.
	EngineVocabSize    int     `json:"engine_vocab_size,omitempty"`
	StopIDs            []int32 `json:"stop_ids,omitempty"`
	TokenizerSHA256    string  `json:"tokenizer_sha256"`
	ChatTemplate       string  `json:"chat_template"` // name of the template: default or tool_use
	ChatTemplateSHA256 string  `json:"chat_template_sha256"`
	// Files is the name of the folder in TokenizerDir that contains the files of the tokenizer and the
	// template. It is empty if the run keeps no copy.
	Files string `json:"files,omitempty"`
}

// DescribeModel returns the Model of a tokenizer and a chat template.
func DescribeModel(m *prompt.Model) *Model {
	return &Model{
		Family: string(m.Tokenizer.Family()), VocabSize: m.Tokenizer.VocabSize(), TokenizerSHA256: m.Tokenizer.Digest(),
		EngineVocabSize: m.VocabSize, StopIDs: m.StopIDs,
		ChatTemplate: m.Template.Name(), ChatTemplateSHA256: model.TemplateDigest(m),
	}
}

// Tokenizer returns the digest of the tokenizer, or "" if m is nil.
func (m *Model) Tokenizer() string {
	if m == nil {
		return ""
	}
	return m.TokenizerSHA256
}

// engine returns the values from config.json and generation_config.json that rows depend on, or ""
// if there are none.
func (m *Model) engine() string {
	if m == nil || m.EngineVocabSize == 0 && len(m.StopIDs) == 0 {
		return ""
	}
	return fmt.Sprintf("vocab_size %d, eos_token_id %v", m.EngineVocabSize, m.StopIDs)
}

// TokenizerPlace returns where the run's tokenizer is: its own copy or, if there is none, the tokenizer folder of the
// last invocation. Place.Dir is empty if that folder no longer exists. A relative path is resolved against the working
// directory, and then against the run's parent folder.
//
// dir is the folder of the run. If objects is not nil, the run is in this store instead.
func (i *Info) TokenizerPlace(dir string, objects store.Store) (model.Place, error) {
	p := model.Place{Key: "tokenizer"}
	if i.Model != nil {
		p.Tokenizer, p.Template = i.Model.TokenizerSHA256, i.Model.ChatTemplateSHA256
	}
	copied, err := i.hasCopy(dir, objects)
	switch {
	case err != nil:
		return p, exit.With(exit.Storage, err)
	case copied && objects != nil:
		p.Copy, p.Store = i.Model.Files, objects.Sub(TokenizerDir)
		p.Dir = p.Store.String() + "/" + p.Copy
	case copied:
		p.Copy, p.Dir = i.Model.Files, filepath.Join(dir, TokenizerDir, i.Model.Files)
	default:
		p.Dir = i.configuredTokenizer(dir, objects != nil)
	}
	return p, nil
}

// configuredTokenizer returns the tokenizer folder of the last invocation, or "" if it does not exist.
func (i *Info) configuredTokenizer(dir string, remote bool) string {
	var path string
	if json.Unmarshal(i.Config["tokens"]["tokenizer"], &path) != nil || path == "" {
		return ""
	}
	if path == lettasim.ModelName {
		return path
	}
	tries := []string{path}
	if !filepath.IsAbs(path) && !remote {
		tries = append(tries, filepath.Join(filepath.Dir(filepath.Clean(dir)), path))
	}
	for _, at := range tries {
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return at
		}
	}
	return ""
}

// template returns the digest of the chat template, or "" if m is nil.
func (m *Model) template() string {
	if m == nil {
		return ""
	}
	return m.ChatTemplateSHA256
}

// Same reports whether both models rebuild the same prompts.
func (m *Model) Same(other *Model) bool {
	return m.Tokenizer() == other.Tokenizer() && m.template() == other.template()
}
