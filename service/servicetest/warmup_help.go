package servicetest

import (
	"github.com/mailstead/mailstead/store"
)

// Marked counts the messages with the warm-up mark, by folder and mailbox.
func (i *Installation) Marked(boxes ...*store.Mailbox) map[string]int {
	i.T.Helper()
	out := map[string]int{}
	err := i.St.View(func(tx *store.Tx) error {
		for _, mb := range boxes {
			folders, err := tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			for _, f := range folders {
				for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
					n := 0
					if m.Bits&store.BitWarmup != 0 {
						n = 1
					}
					out[f.Name+" "+mb.Email[:3]] += n
				}
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return out
}
