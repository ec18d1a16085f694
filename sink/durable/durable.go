// Package durable makes changes to a folder survive a power cut.
//
// File.Sync makes only a file's content durable. The file's name is part of its folder. After a
// create, rename, link or remove, the folder must be synced too, or a power cut can undo the
// change.
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
