package store

import "time"

// A MasterKey says which master key the secrets of this store are sealed under. The key itself is
// never in the store.
type MasterKey struct {
	ID          string // MasterKeyID
	Fingerprint string
	Since       time.Time
}

// MasterKeyID is the id of the one record of MasterKeys.
const MasterKeyID = "master"

// MasterKeys has one record, from the first start on.
var MasterKeys = newTable("master_key", func(k *MasterKey) string { return k.ID })
