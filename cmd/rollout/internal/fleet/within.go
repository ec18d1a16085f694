package fleet

import (
	"crypto/sha256"
	"iter"
	"strings"

	"github.com/rollout-rl/rollout/sink/store"
)

// Dataset returns the store of a partition's dataset, which is a part of the fleet's store.
func Dataset(objects store.Store, p int) store.Store {
	return within{objects, PartitionName(p) + "/"}
}

// A within is the part of a store whose names have a prefix. The prefix ends with a slash.
type within struct {
	objects store.Store
	prefix  string
}

func (w within) PutNew(name string, body []byte) error { return w.objects.PutNew(w.prefix+name, body) }

func (w within) PutFile(name, file string, sum [sha256.Size]byte) error {
	return w.objects.PutFile(w.prefix+name, file, sum)
}

func (w within) Put(name string, body []byte) error     { return w.objects.Put(w.prefix+name, body) }
func (w within) Get(name string) ([]byte, error)        { return w.objects.Get(w.prefix + name) }
func (w within) Open(name string) (store.Object, error) { return w.objects.Open(w.prefix + name) }
func (w within) Delete(name string) error               { return w.objects.Delete(w.prefix + name) }
func (w within) String() string                         { return w.objects.String() + "/" + strings.TrimSuffix(w.prefix, "/") }

func (w within) List(prefix, after string) iter.Seq2[store.Info, error] {
	if after != "" {
		after = w.prefix + after
	}
	return func(yield func(store.Info, error) bool) {
		for info, err := range w.objects.List(w.prefix+prefix, after) {
			info.Name = strings.TrimPrefix(info.Name, w.prefix)
			if !yield(info, err) {
				return
			}
		}
	}
}
