package runfolder_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store"
)

// A run's copy of its tokenizer loads the same tokenizer and template. A second copy changes nothing,
// and the leftover of a killed process is replaced.
func TestKeepTokenizer(t *testing.T) {
	t.Parallel()
	m, files, err := model.LoadFiles("tokens.tokenizer", lettasim.ModelName, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := files.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	torn := filepath.Join(dir, runfolder.TokenizerDir, ".tmp-"+digest)
	if err := os.MkdirAll(torn, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(torn, "tokenizer.json.zst"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := &runfolder.Folder{Dir: dir, Mode: 0o640}
	for range 2 {
		if err := folder.KeepTokenizer(files); err != nil {
			t.Fatal(err)
		}
	}
	own := runfolder.DescribeModel(m)
	own.Files = digest
	info := runfolder.Info{Model: own}
	inFolder := must1(info.TokenizerPlace(dir, nil))(t)
	path := inFolder.Dir
	if path != filepath.Join(dir, runfolder.TokenizerDir, digest) {
		t.Fatalf("path %q", path)
	}
	copied, again, err := model.LoadFiles("tokenizer", path, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	same := runfolder.DescribeModel(copied)
	if !same.Same(own) || same.VocabSize != own.VocabSize || len(same.StopIDs) != len(own.StopIDs) {
		t.Errorf("the copy is %+v, want %+v", same, own)
	}
	if d, err := again.Digest(); err != nil || d != digest {
		t.Errorf("digest of the copy %s (%v), want %s", d, err, digest)
	}
	if _, err := os.Stat(filepath.Join(path, "tokenizer.json.zst")); err != nil {
		t.Error(err)
	}
	inStore := must1(info.TokenizerPlace("", must1(store.Open(t.Context(), dir, store.Options{}))(t)))(t)
	loads := func(p model.Place) error {
		got, err := p.Load(nil)
		if err == nil && got.Tokenizer.Digest() != m.Tokenizer.Digest() {
			t.Error("another tokenizer")
		}
		return err
	}
	for _, p := range []model.Place{inFolder, inStore} {
		if changed, err := p.Check(); changed != nil || err != nil {
			t.Error(changed, err)
		}
		if err := loads(p); err != nil {
			t.Error(err)
		}
	}
	for _, file := range must1(filepath.Glob(filepath.Join(path, "*")))(t) {
		body := must1(os.ReadFile(file))(t)
		for name, spoil := range map[string]func() error{
			"a flipped byte": func() error {
				body := append([]byte{}, body...)
				body[len(body)/2] ^= 1
				return os.WriteFile(file, body, 0o600)
			},
			"a cut file": func() error { return os.WriteFile(file, body[:len(body)-1], 0o600) },
			"no file":    func() error { return os.Remove(file) },
			"one more":   func() error { return os.WriteFile(filepath.Join(path, "more.json"), nil, 0o600) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			for _, p := range []model.Place{inFolder, inStore} {
				if changed, err := p.Check(); changed == nil || err != nil {
					t.Errorf("%s: %s in %s is not found: %v", filepath.Base(file), name, p.Dir, err)
				}
				if err := loads(p); exit.Code(err) != exit.Verify || !strings.Contains(exit.HintOf(err), "restore the copy") {
					t.Errorf("%s: %s in %s: %v", filepath.Base(file), name, p.Dir, err)
				}
			}
			_ = os.Remove(filepath.Join(path, "more.json"))
			if err := os.WriteFile(file, body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, runfolder.TokenizerDir, ".tmp-*")); left != nil {
		t.Errorf("leftovers %q", left)
	}
}

func must1[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
