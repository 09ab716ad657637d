//! A path that is only written down when somebody is told of it: a resource has thousands of members, and of
//! most of them there is nothing to say.

use super::FieldPath;

/// A place in a resource, seen from the place above it.
#[derive(Clone, Copy, Debug)]
pub enum FieldStep<'a> {
    /// The resource itself.
    Root,
    /// A place that was written down already.
    At(&'a FieldPath),
    /// A member.
    Field(&'a FieldStep<'a>, &'a str),
    /// An item of a list.
    Index(&'a FieldStep<'a>, usize),
    /// An entry of a map.
    Key(&'a FieldStep<'a>, &'a str),
}

impl<'a> FieldStep<'a> {
    /// The member `name` below this place.
    pub const fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    /// The item `index` of this place.
    pub const fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// The entry `key` of this place.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl From<&FieldStep<'_>> for FieldPath {
    fn from(step: &FieldStep<'_>) -> Self {
        match *step {
            FieldStep::Root => Self::root(),
            FieldStep::At(path) => path.clone(),
            FieldStep::Field(above, name) => Self::from(above).field(name),
            FieldStep::Index(above, index) => Self::from(above).index(index),
            FieldStep::Key(above, key) => Self::from(above).key(key),
        }
    }
}

impl From<FieldStep<'_>> for FieldPath {
    fn from(step: FieldStep<'_>) -> Self {
        Self::from(&step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_like_the_path() {
        let (root, path) = (FieldStep::Root, FieldPath::root());
        let (a, b) = (root.field("networking"), path.field("networking"));
        let (a, b) = (a.field("inbound"), b.field("inbound"));
        let (a, b) = (a.index(3), b.index(3));
        let (a, b) = (a.field("tags"), b.field("tags"));
        assert_eq!(FieldPath::from(a.key("k")), b.key("k"));
        assert_eq!(FieldPath::from(root), path);
        assert_eq!(FieldPath::from(FieldStep::At(&b).field("x")), b.field("x"));
    }
}
