import{a,b,c}from"./part-9e69b8cc98c33cbe.js";import"./part-a65b044fe478345f.js";export{b as EditRule,a as Rules,c as Vacation};
