package servicetest

import (
	"testing"

	"github.com/mailstead/mailstead/store"
)

// An Account is the record of an account.
type Account = store.Account

// ChangeAccount changes the record of an account.
func (b *Sandbox) ChangeAccount(t testing.TB, id string, change func(*Account)) {
	t.Helper()
	b.update(t, changeOf(id, change))
}

// ChangeAccount changes the record of an account.
func (i *Installation) ChangeAccount(id string, change func(*Account)) {
	i.T.Helper()
	i.Update(changeOf(id, change))
}

// changeOf returns a transaction that changes the record of an account.
func changeOf(id string, change func(*Account)) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, id)
		if err != nil {
			return err
		}
		change(a)
		return store.Accounts.Put(tx, a)
	}
}

// AddEndedJob adds a job of an account that has ended with a result, and returns its id.
func (b *Sandbox) AddEndedJob(t testing.TB, accountID, kind, result string) string {
	t.Helper()
	id := b.Core.Store.NewID("job")
	b.update(t, func(tx *store.Tx) error {
		return store.Jobs.Put(tx, &store.Job{
			ID: id, AccountID: accountID, Kind: kind, State: store.JobCompleted, Visible: true, Result: []byte(result), CreatedAt: tx.Now(), UpdatedAt: tx.Now(), EndedAt: tx.Now(),
		})
	})
	return id
}

// Letters returns the subjects of the messages to an address in the sending log, the oldest first.
func (b *Sandbox) Letters(t testing.TB, to string) (subjects []string) {
	t.Helper()
	err := b.Core.Store.View(func(tx *store.Tx) error {
		subjects = nil
		for o := range store.Outgoings.All(tx) {
			if o.Recipient == to {
				subjects = append(subjects, o.Subject)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return subjects
}
