// Package durable makes changes of a folder outlive a power cut.
//
// A file has its content on disk after File.Sync. Its name is part of its folder: after a
// create, a rename, a link or a remove, the folder has to be synced as well, or a power cut
// may bring the old name back.
package durable

import (
	"errors"
	"os"
)

// SyncDir makes the names in a folder durable. It blocks on the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
