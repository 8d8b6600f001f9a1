//! What is written here of PMIx, against its header and the loader.

use super::*;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// Prints what the header has; expressions in their order, then keys.
fn program(numbers: &[(&str, i64)], keys: &[(&str, &CStr)]) -> String {
    let mut text = String::from("#include <pmix.h>\n#include <stddef.h>\n#include <stdio.h>\n");
    text.push_str("int main(void) {\n");
    for (name, _) in numbers {
        text.push_str(&format!("  printf(\"%lld\\n\", (long long)({name}));\n"));
    }
    for (name, _) in keys {
        text.push_str(&format!("  puts({name});\n"));
    }
    text + "  return 0;\n}\n"
}

/// What the compiler needs to find the header, where that is not on its path.
fn includes() -> Vec<String> {
    let said = Command::new("pkg-config").args(["--cflags", "pmix"]).output();
    let flags = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    flags.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_header_has_the_same_numbers_and_sizes() {
    let numbers = [
        ("PMIX_MAX_NSLEN", MAX_NSLEN as i64),
        ("PMIX_MAX_KEYLEN", MAX_KEYLEN as i64),
        ("PMIX_RANK_WILDCARD", RANK_WILDCARD.into()),
        ("PMIX_SUCCESS", SUCCESS.into()),
        ("PMIX_ERR_NOT_FOUND", ERR_NOT_FOUND.into()),
        ("PMIX_OPERATION_SUCCEEDED", OPERATION_SUCCEEDED.into()),
        ("PMIX_BOOL", BOOL.into()),
        ("PMIX_STRING", STRING.into()),
        ("PMIX_UINT32", UINT32.into()),
        ("PMIX_BYTE_OBJECT", BYTE_OBJECT.into()),
        ("PMIX_GLOBAL", GLOBAL.into()),
        ("sizeof(pmix_status_t)", size_of::<c_int>() as i64),
        ("sizeof(pmix_rank_t)", 4),
        ("sizeof(pmix_scope_t)", 1),
        ("sizeof(pmix_data_type_t)", 2),
        ("sizeof(pmix_info_directives_t)", 4),
        ("sizeof(pmix_proc_t)", size_of::<Proc>() as i64),
        ("offsetof(pmix_proc_t, rank)", offset_of!(Proc, rank) as i64),
        ("sizeof(pmix_byte_object_t)", size_of::<ByteObject>() as i64),
        ("offsetof(pmix_byte_object_t, size)", offset_of!(ByteObject, size) as i64),
        ("sizeof(pmix_value_t)", size_of::<Value>() as i64),
        ("offsetof(pmix_value_t, data)", offset_of!(Value, data) as i64),
        ("sizeof(pmix_info_t)", size_of::<Info>() as i64),
        ("offsetof(pmix_info_t, flags)", offset_of!(Info, flags) as i64),
        ("offsetof(pmix_info_t, value)", offset_of!(Info, value) as i64),
    ];
    let keys = [
        ("PMIX_COLLECT_DATA", COLLECT_DATA),
        ("PMIX_JOB_SIZE", JOB_SIZE),
        ("PMIX_HOSTNAME", HOSTNAME),
    ];
    let room = tempfile::tempdir().unwrap();
    let (source, binary) = (room.path().join("a.c"), room.path().join("a"));
    std::fs::write(&source, "#include <pmix.h>\nint main(void) { return 0; }\n").unwrap();
    let compile = || {
        let mut cc = Command::new("cc");
        cc.args(includes()).arg(&source).arg("-o").arg(&binary).output()
    };
    if !compile().is_ok_and(|said| said.status.success()) {
        println!("there is no C compiler, or no pmix.h, on this machine: not checked");
        return;
    }
    std::fs::write(&source, program(&numbers, &keys)).unwrap();
    let said = compile().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = Command::new(&binary).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let numbers = numbers.map(|(name, value)| (name, value.to_string()));
    let keys = keys.map(|(name, key)| (name, key.to_str().unwrap().to_owned()));
    let wanted: Vec<_> = numbers.into_iter().chain(keys).collect();
    assert_eq!(said.lines().count(), wanted.len());
    for ((name, wanted), said) in wanted.iter().zip(said.lines()) {
        assert_eq!(said, wanted, "{name}");
    }
}

#[test]
fn no_library_and_another_library_say_what_to_do() {
    for (name, why) in [
        ("/no/such/libpmix.so", "cannot be loaded"),
        ("a\0b", "is no library"),
        ("libc.so.6", "has no PMIx_Init"),
    ] {
        let error = Library::open(name).err().unwrap();
        assert!(error.contains(why) && error.contains("hither run"), "{name}: {error}");
    }
}

#[test]
fn values_are_taken_as_their_types_say_and_no_others() {
    let value = |kind, data| Value { kind, data };
    let bytes = b"ab\0c";
    let bo = |bytes: &[u8], size| Data {
        bo: ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size },
    };
    let string = Data { string: bytes.as_ptr().cast_mut().cast() };
    let null = || Data { room: [0; 3] };
    let nowhere = |size| Data { bo: ByteObject { bytes: std::ptr::null_mut(), size } };
    for (value, wanted) in [
        (value(UINT32, Data { uint32: 7 }), Got::Number(7)),
        (value(STRING, string), Got::Text("ab".into())),
        (value(STRING, null()), Got::Else(STRING)),
        (value(BYTE_OBJECT, bo(bytes, 4)), Got::Bytes(bytes.to_vec())),
        (value(BYTE_OBJECT, bo(bytes, MOST + 1)), Got::Else(BYTE_OBJECT)),
        (value(BYTE_OBJECT, nowhere(0)), Got::Bytes(Vec::new())),
        (value(BYTE_OBJECT, nowhere(3)), Got::Else(BYTE_OBJECT)),
        (value(BOOL, Data { flag: true }), Got::Else(BOOL)),
        (value(0, null()), Got::Else(0)),
    ] {
        // SAFETY: what they point to is above.
        assert_eq!(unsafe { read(&value) }, wanted);
    }
}
