package store

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

const (
	probeWriters = 32
	probeRounds  = 20

	needed = "use a store with conditional puts, such as Amazon S3, Cloudflare R2, MinIO, Ceph or versitygw"
)

// Probe checks that a store has put-if-absent. In a bucket, 32 writers create the same object at the
// same time, 20 times. Exactly one writer of each object must succeed, and all others must read its
// content. Probe then deletes the objects. It makes about 1,300 requests. In a folder, Probe checks
// that hard links are possible.
//
// If a store ignores conditions, the error wraps [ErrNoConditions] or [ErrNoLinks], and names the
// store.
func Probe(s Store) error {
	if f, ok := s.(*folder); ok {
		return f.probe()
	}
	id := rand.Text()
	for round := range probeRounds {
		name := fmt.Sprintf(".probe/%s/%d", id, round)
		err := probeOnce(s, name)
		if !errors.Is(err, ErrUnreachable) { // otherwise the deletion would wait too
			err = cmp.Or(err, s.Delete(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func probeOnce(s Store, name string) error {
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, probeWriters)
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = s.PutNew(name, probeBody(i))
		})
	}
	close(start)
	wg.Wait()
	winner, winners := 0, 0
	for i, err := range errs {
		switch {
		case err == nil:
			winner, winners = i, winners+1
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	if winners == 1 {
		body, err := s.Get(name)
		if err != nil {
			return err
		}
		if string(body) == string(probeBody(winner)) {
			return nil
		}
	}
	what := fmt.Sprintf("%d of %d writers created the same object", winners, probeWriters)
	return &Error{Path: s.String(), Op: "probe", Err: cause(ErrNoConditions, what, needed)}
}

func probeBody(writer int) []byte { return fmt.Appendf(nil, "writer %d", writer) }
