//! The same for the structure a peer describes itself in.

use crate::{
    proto::google::protobuf::Struct,
    structure::{from_json, to_json},
};

/// Takes secrets out of a structure.
pub fn structure(structure: &mut Struct) {
    let mut members = to_json(std::mem::take(structure));
    super::object(&mut members, None);
    *structure = from_json(members);
}
