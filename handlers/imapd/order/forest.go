package order

// A forest is a set of rooted trees whose nodes are numbered from 1. It finds the root of a node,
// links trees and cuts them in amortized O(log n) time, however deep the trees are (link-cut trees
// of Sleator and Tarjan). With hostile chains of references, plain walks to the root would take
// quadratic time in all.
//
// Each tree is divided into paths. A path is a splay tree ordered by depth. left and right are the
// children in it. up is the parent in it, or for the top of a splay tree the node above the path,
// or 0.
type forest struct{ up, left, right []int32 }

// add adds a tree of one node.
func (f *forest) add() {
	f.up, f.left, f.right = append(f.up, 0), append(f.left, 0), append(f.right, 0)
}

// isTop reports whether x is the top of the splay tree of its path.
func (f *forest) isTop(x int32) bool {
	p := f.up[x]
	return p == 0 || f.left[p] != x && f.right[p] != x
}

// rotate moves x to the place of its parent in the splay tree.
func (f *forest) rotate(x int32) {
	p := f.up[x]
	above, wasTop := f.up[p], f.isTop(p)
	var middle int32
	if f.left[p] == x {
		middle = f.right[x]
		f.left[p], f.right[x] = middle, p
	} else {
		middle = f.left[x]
		f.right[p], f.left[x] = middle, p
	}
	if middle != 0 {
		f.up[middle] = p
	}
	f.up[p], f.up[x] = x, above
	switch {
	case wasTop:
	case f.left[above] == p:
		f.left[above] = x
	default:
		f.right[above] = x
	}
}

// splay moves x to the top of the splay tree of its path.
func (f *forest) splay(x int32) {
	for !f.isTop(x) {
		if p := f.up[x]; !f.isTop(p) {
			if (f.left[p] == x) == (f.left[f.up[p]] == p) {
				f.rotate(p)
			} else {
				f.rotate(x)
			}
		}
		f.rotate(x)
	}
}

// makePathTo makes the nodes from the root down to x one path, with x as the top of its splay tree.
func (f *forest) makePathTo(x int32) {
	below := int32(0)
	for at := x; at != 0; at = f.up[at] {
		f.splay(at)
		f.right[at] = below
		below = at
	}
	f.splay(x)
}

// root returns the root of the tree of x.
func (f *forest) root(x int32) int32 {
	f.makePathTo(x)
	for f.left[x] != 0 {
		x = f.left[x]
	}
	f.splay(x)
	return x
}

// link makes child, which must be a root, a child of parent, which must be in another tree.
func (f *forest) link(child, parent int32) {
	f.makePathTo(child)
	f.up[child] = parent
}

// cut separates a node from its parent, with all nodes below the node. The node must not be a root.
func (f *forest) cut(child int32) {
	f.makePathTo(child)
	f.up[f.left[child]] = 0
	f.left[child] = 0
}
